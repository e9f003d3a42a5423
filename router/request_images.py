"""The image parts of a chat request: found in prompt order, and replaced before the request goes to a decoder.

A client writes {"type": "image_url", "image_url": {"url": ...}}. The decoder gets {"type": "image_embeds",
"image_embeds": i}, i being the image's place in the hand-off; the bytes stay behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from router.errors import bad_request

# Part types without media, which vLLM renders itself.
TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal", "thinking"})


@dataclass(frozen=True, slots=True)
class ImagePart:
    """One image of a request. path: e.g. "messages[0].content[1]". one_tile: the client asked for low detail."""

    path: str
    url: str
    one_tile: bool


def split_images(body: dict[str, Any], max_images: int) -> tuple[dict[str, Any], list[ImagePart]]:
    """(the body for the decoder, the images in prompt order). `body` is left as it is.

    Raises ApiError 400, naming the part: an unknown part type, a media type that the model lacks, a missing or
    malformed `image_url`, too many images. Everything else is left to the decoder's own validation.
    """
    messages = body.get("messages")
    if not isinstance(messages, list):
        return body, []
    images: list[ImagePart] = []
    new_messages = []
    for m, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list):
            new_messages.append(message)
            continue
        parts = []
        for p, part in enumerate(content):
            path = f"messages[{m}].content[{p}]"
            image = _image_of(part, path)
            if image is None:
                parts.append(part)
                continue
            if len(images) == max_images:
                raise bad_request(f"{path}: at most {max_images} images are allowed in one request", path)
            parts.append({"type": "image_embeds", "image_embeds": len(images)})
            images.append(image)
        new_messages.append({**message, "content": parts})
    return {**body, "messages": new_messages}, images


def _image_of(part: Any, path: str) -> ImagePart | None:
    """The image that a content part holds, None for a part without media."""
    if isinstance(part, str):
        return None
    if not isinstance(part, dict):
        raise bad_request(f"{path}: a content part must be an object", path)
    kind = part.get("type")
    if isinstance(kind, str) and kind in TEXT_PARTS:
        return None
    if kind != "image_url":
        if kind is None:
            raise bad_request(f"{path}: the part has no `type`", path)
        if isinstance(kind, str) and kind.endswith("_embeds"):
            raise bad_request(f"{path}: precomputed embeddings are not accepted here", path)
        raise bad_request(f"{path}: this part type is not supported; use `text` or `image_url`", path)
    value = part.get("image_url")
    url = value.get("url") if isinstance(value, dict) else value
    if not isinstance(url, str) or not url:
        raise bad_request(f"{path}.image_url: must be an object with a `url`", path)
    detail = value.get("detail", "auto") if isinstance(value, dict) else "auto"
    if detail not in ("auto", "low", "high", None):
        raise bad_request(f"{path}.image_url.detail: must be auto, low or high", path)
    return ImagePart(path, url, one_tile=detail == "low")
