"""What the fuzzer feeds: the parts of the intake that a client's bytes reach."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import suppress

from encoder_pool.settings import ModelSettings
from router.client_embeddings import ClientEmbeddings
from router.config import AppConfig
from router.errors import ApiError
from router.image_decode import open_picture
from router.image_source import ImageSource
from router.request_images import EmbeddingPart, split_images

CONFIG = AppConfig.model_validate(
    {"model": ModelSettings(source="demo/checkpoint"), "router": {"max_image_bytes": 65536}}
)
SOURCE = ImageSource(CONFIG.router)
EMBEDDINGS = ClientEmbeddings(CONFIG, 16)
MAX_PIXELS = 1_000_000


def picture(data: bytes) -> None:
    image = open_picture(data, "p", MAX_PIXELS).rgb()
    assert image.mode == "RGB"
    assert image.width * image.height <= MAX_PIXELS


def data_url(data: bytes) -> None:
    asyncio.run(SOURCE.read("data:" + data.decode("utf-8", "replace"), "p"))


def embedding(data: bytes) -> None:
    """The first byte is the aspect."""
    aspect = data[0] % 5, data[0] // 5 % 5
    EMBEDDINGS._read(EmbeddingPart("p", base64.b64encode(data[1:]).decode(), aspect))


def parts(data: bytes) -> None:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return
    for endpoint in ("chat", "responses"):
        body = {"messages": [{"role": "user", "content": content}], "input": [{"role": "user", "content": content}]}
        split_images(endpoint, body, 4, embeddings=True)


TARGETS = (picture, data_url, embedding, parts)


def one_input(data: bytes) -> None:
    """The first byte says which target gets the rest. Raises what a client would see as a fault of ours."""
    if len(data) < 3:
        return
    with suppress(ApiError):
        TARGETS[data[0] % len(TARGETS)](data[1:])
