"""The image parts of a request: found in prompt order, and replaced before the request goes to a decoder.

A chat holds {"type": "image_url", "image_url": {"url": ...}}, the input of a response {"type": "input_image",
"image_url": ...}. The decoder gets a placeholder (see llm_pool/placeholders.py) with the image's place in the hand-off;
the bytes stay behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llm_pool.placeholders import content_lists, placeholder
from llm_pool.reply import Endpoint
from router.errors import bad_request

# Part types without media, which vLLM renders itself.
TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal", "thinking"})


@dataclass(frozen=True, slots=True)
class ImagePart:
    """One image of a request. path: e.g. "messages[0].content[1]". one_tile: the client asked for low detail."""

    path: str
    url: str
    one_tile: bool


@dataclass(frozen=True, slots=True)
class EmbeddingPart:
    """An image that comes as an embedding (see client_embeddings.py). data: base64; aspect: (high, wide)."""

    path: str
    data: str
    aspect: tuple[int, int]


def split_images(
    endpoint: Endpoint, body: dict[str, Any], max_images: int, *, embeddings: bool = False
) -> tuple[dict[str, Any], list[ImagePart | EmbeddingPart]]:
    """(the body for the decoder, the images in prompt order). `body` is left as it is.

    embeddings: whether a chat may hold EmbeddingParts.
    Raises ApiError 400, naming the part: an unknown part type, a media type that the model lacks, a missing or
    malformed image, an image in an answer of the model's, too many images. Everything else is left to the decoder's
    own validation.
    """
    field = "input" if endpoint == "responses" else "messages"
    items = body.get(field)
    if not isinstance(items, list):
        return body, []
    images: list[ImagePart | EmbeddingPart] = []
    new_items = []
    for i, item in enumerate(items):
        new_item = item
        for name, content in content_lists(item):
            parts = []
            for p, part in enumerate(content):
                path = f"{field}[{i}].{name}[{p}]"
                image = _image_of(part, path, embeddings and endpoint == "chat")
                if image is None:
                    parts.append(part)
                    continue
                if len(images) == max_images:
                    raise bad_request(f"{path}: at most {max_images} images are allowed in one request", path)
                if endpoint == "responses" and item.get("role") == "assistant":
                    # vLLM takes nothing but text from there.
                    raise bad_request(f"{path}: an answer of the assistant cannot hold an image", path)
                parts.append(placeholder(endpoint, len(images)))
                images.append(image)
            new_item = {**new_item, name: parts}
        new_items.append(new_item)
    return {**body, field: new_items}, images


def _image_of(part: Any, path: str, embeddings: bool) -> ImagePart | EmbeddingPart | None:
    """The image that a content part holds, None for a part without media."""
    if isinstance(part, str):
        return None
    if not isinstance(part, dict):
        raise bad_request(f"{path}: a content part must be an object", path)
    kind = part.get("type")
    if isinstance(kind, str) and kind in TEXT_PARTS:
        if kind.endswith("text") and not isinstance(part.get("text"), str):
            raise bad_request(f"{path}.text: must be a text", f"{path}.text")
        return None
    if kind == "image_url":
        value = part.get("image_url")
        url, detail = (value.get("url"), value.get("detail")) if isinstance(value, dict) else (value, None)
    elif kind == "input_image":
        url, detail = part.get("image_url"), part.get("detail")
        if part.get("file_id") is not None:
            raise bad_request(f"{path}.file_id: there are no uploaded files here; use `image_url`", f"{path}.file_id")
    elif kind is None:
        raise bad_request(f"{path}: the part has no `type`", path)
    elif kind == "image_embeds" and embeddings:
        return _embedding_of(part, path)
    elif isinstance(kind, str) and kind.endswith("_embeds"):
        raise bad_request(f"{path}: precomputed embeddings are not accepted here", path)
    else:
        raise bad_request(f"{path}: this part type is not supported; use text or an image", path)
    if not isinstance(url, str) or not url:
        shape = "be an object with a `url`" if kind == "image_url" else "be a URL"
        raise bad_request(f"{path}.image_url: must {shape}", path)
    if detail not in ("auto", "low", "high", None):
        raise bad_request(f"{path}: `detail` must be auto, low or high", path)
    return ImagePart(path, url, one_tile=detail == "low")


def _embedding_of(part: dict[str, Any], path: str) -> EmbeddingPart:
    value = part.get("image_embeds")
    if not isinstance(value, dict) or not isinstance(value.get("data"), str):
        raise bad_request(f"{path}.image_embeds: must be an object with `data` and `aspect_ratio`", path)
    match value.get("aspect_ratio", [1, 1]):
        case [int(high), int(wide)]:
            return EmbeddingPart(path, value["data"], (int(high), int(wide)))
    raise bad_request(f"{path}.image_embeds.aspect_ratio: must be [high, wide], in tiles", path)
