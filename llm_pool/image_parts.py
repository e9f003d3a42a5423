"""Puts a request's embeddings into its chat messages, in the form in which vLLM takes them.

The Router leaves {"type": "image_embeds", "image_embeds": i} where image i of the hand-off stood; vLLM wants a ticket
there, the image's grid and tiles, and its content hash as `uuid`, which keys vLLM's caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from llm_pool.embeddings import ImageEmbedding
from llm_pool.errors import EmbeddingError

PART_TYPE = "image_embeds"


def fill_image_parts(messages: Any, images: Sequence[ImageEmbedding], tickets: Sequence[str]) -> None:
    """Fills every image part of `messages`, in place, from image and ticket i.

    Raises EmbeddingError where the parts are not images 0, 1, ..., len(images) - 1 in this order.
    """
    parts = list(_image_parts(messages))
    if [part.get(PART_TYPE) for part in parts] != list(range(len(images))):
        raise EmbeddingError(f"the {len(parts)} image parts of the messages do not match the {len(images)} images")
    for part, image, ticket in zip(parts, images, tickets, strict=True):
        part["uuid"] = image.hash
        part[PART_TYPE] = {
            "image_embeds": ticket,
            "aspect_ratios": list(image.aspect),
            "patches_per_image": [image.tiles],
        }


def _image_parts(messages: Any) -> Iterator[dict[str, Any]]:
    """The image parts in prompt order; what is malformed otherwise is left to vLLM's own validation."""
    for message in messages if isinstance(messages, list) else []:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else []:
            if isinstance(part, dict) and part.get("type") == PART_TYPE:
                yield part
