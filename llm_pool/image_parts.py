"""Puts a request's embeddings into its content lists, in the form in which vLLM takes them.

The Router leaves a placeholder where image i of the hand-off stood. vLLM wants there its embedding, for which a
stand-in goes (see stand_ins.py), its grid and tiles, and its content hash as `uuid`, which keys vLLM's caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from encoder_pool.wire import ImageShard
from llm_pool.embeddings import EmbeddingSpec
from llm_pool.errors import EmbeddingError
from llm_pool.placeholders import content_lists, image_number, is_placeholder
from llm_pool.stand_ins import stand_in


def vllm_parts(images: Sequence[ImageShard], spec: EmbeddingSpec) -> list[dict[str, Any]]:
    """The content part of each image of a hand-off."""
    return [
        {
            "type": "image_embeds",
            "uuid": image.hash,
            "image_embeds": {
                "image_embeds": stand_in(image.tiles * spec.tokens_per_tile, spec.width, spec.dtype),
                "aspect_ratios": list(image.aspect),
                "patches_per_image": [image.tiles],
            },
        }
        for image in images
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


def _placeholders(items: Any) -> Iterator[tuple[list[Any], int, int | None]]:
    """(content list, place in it, image's number); what is malformed otherwise is left to vLLM's own validation."""
    for item in items if isinstance(items, list) else []:
        for _, content in content_lists(item):
            for place, part in enumerate(content):
                if is_placeholder(part):
                    yield content, place, image_number(part)
