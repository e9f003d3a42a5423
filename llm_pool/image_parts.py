"""Puts a request's embeddings into its content lists, in the form in which vLLM takes them.

The Router leaves a placeholder where image i of the hand-off stood. vLLM wants a ticket there, the image's grid and
tiles, and its content hash as `uuid`, which keys vLLM's caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from llm_pool.embeddings import ImageEmbedding
from llm_pool.errors import EmbeddingError

# A placeholder of a chat is {"type": "image_embeds", "image_embeds": i}. In the input of a response it is
# {"type": "input_image", "image_url": "i", "detail": "auto"}, since vLLM's request model takes no embeddings there.
CHAT_TYPE = "image_embeds"
RESPONSES_TYPE = "input_image"
# Where messages, and the items of a response's input, may hold content.
CONTENTS = ("content", "output")


def vllm_parts(images: Sequence[ImageEmbedding], tickets: Sequence[str]) -> list[dict[str, Any]]:
    """The content part of each image, with its ticket."""
    return [
        {
            "type": CHAT_TYPE,
            "uuid": image.hash,
            "image_embeds": {
                "image_embeds": ticket,
                "aspect_ratios": list(image.aspect),
                "patches_per_image": [image.tiles],
            },
        }
        for image, ticket in zip(images, tickets, strict=True)
    ]


def fill(items: Any, parts: Sequence[dict[str, Any]]) -> None:
    """Puts `parts` in place of the placeholders of `items` (messages, or a response's input), in prompt order.

    Raises EmbeddingError where the placeholders are not 0, 1, ..., len(parts) - 1 in this order.
    """
    found = list(_placeholders(items))
    if [number for _, _, number in found] != list(range(len(parts))):
        raise EmbeddingError(f"the {len(found)} image parts of the request do not match its {len(parts)} images")
    for part, (content, place, _) in zip(parts, found, strict=True):
        content[place] = part


def _placeholders(items: Any) -> Iterator[tuple[list[Any], int, Any]]:
    """(content list, place in it, image's number); what is malformed otherwise is left to vLLM's own validation."""
    for item in items if isinstance(items, list) else []:
        for name in CONTENTS:
            content = item.get(name) if isinstance(item, dict) else None
            if not isinstance(content, list):
                continue
            for place, part in enumerate(content):
                kind = part.get("type") if isinstance(part, dict) else None
                if kind == CHAT_TYPE:
                    yield content, place, part.get("image_embeds")
                elif kind == RESPONSES_TYPE:
                    number = part.get("image_url")
                    yield content, place, int(number) if isinstance(number, str) and number.isdecimal() else None
