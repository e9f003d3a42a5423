"""What stands in a request where an image of its hand-off was; plain types, no vLLM import.

In a chat it is {"type": "image_embeds", "image_embeds": i}. In the input of a response it is {"type": "input_image",
"image_url": "i", "detail": "auto"}, since vLLM's request model takes no embeddings there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llm_pool.reply import Endpoint

# Where a message, or an item of a response's input, may hold content parts.
CONTENTS = ("content", "output")


def placeholder(endpoint: Endpoint, number: int) -> dict[str, Any]:
    """The content part that stands for image `number`."""
    if endpoint == "responses":
        return {"type": "input_image", "image_url": str(number), "detail": "auto"}
    return {"type": "image_embeds", "image_embeds": number}


def content_lists(item: Any) -> Iterator[tuple[str, list[Any]]]:
    """(name, parts) of every list of content parts of a message, or of an item of a response's input."""
    for name in CONTENTS:
        content = item.get(name) if isinstance(item, dict) else None
        if isinstance(content, list):
            yield name, content


def is_placeholder(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in ("image_embeds", "input_image")


def image_number(part: dict[str, Any]) -> int | None:
    """The number in a placeholder; None where it holds none."""
    number = part.get("image_embeds" if part["type"] == "image_embeds" else "image_url")
    if isinstance(number, str) and part["type"] == "input_image" and number.isdecimal():
        return int(number)
    return number if type(number) is int else None
