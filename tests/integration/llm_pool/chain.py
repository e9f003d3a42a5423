"""Encoder and decoder of one process, without Serve: the deployments' own classes on an event loop in a thread."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from encoder_pool.deployment import EncoderPool
from encoder_pool.settings import EncoderSettings, ModelSettings
from encoder_pool.wire import EmbeddingMeta, HandOff, ImageShard
from llm_pool.deployment import LLMPool
from llm_pool.reply import Endpoint, Reply
from llm_pool.settings import LLMSettings
from router.tiling import Tiler

Answers = AsyncGenerator[Reply | str, None]


class Chain:
    """Pictures in, answers out. `decoder` is the LLMPool; `run` awaits something on its event loop."""

    def __init__(self, model: ModelSettings, loop: asyncio.AbstractEventLoop) -> None:
        self.model = model
        self.decoder: LLMPool
        self._loop = loop
        self._tiler = Tiler(model)

    def run(self, work: Coroutine[Any, Any, Any], timeout: float = 300) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    async def start(self, llm: LLMSettings) -> None:
        self._encoder = EncoderPool.func_or_class(self.model, EncoderSettings())
        self.decoder = LLMPool.__new__(LLMPool)
        await self.decoder.__init__(self.model, llm)  # type: ignore[misc]

    async def encode(self, pictures: list[Image.Image]) -> tuple[HandOff | None, list[np.ndarray]]:
        """What the Router would hand to the decoder; None without pictures."""
        if not pictures:
            return None, []
        cut = [self._tiler.tile(picture) for picture in pictures]
        shards = [
            ImageShard(f"{hash(picture.tobytes()):x}", len(tiles.pixels), tiles.aspect)
            for picture, tiles in zip(pictures, cut, strict=True)
        ]
        *arrays, meta = [
            item async for item in self._encoder.encode(np.concatenate([tiles.pixels for tiles in cut]), shards)
        ]
        assert isinstance(meta, EmbeddingMeta)
        for array in arrays:
            array.flags.writeable = False  # as it comes from the object store
        return HandOff(meta.dtype, meta.fingerprint, meta.images), arrays

    async def chat(
        self, body: dict[str, Any], pictures: list[Image.Image], request_id: str = "test", endpoint: Endpoint = "chat"
    ) -> Answers:
        hand_off, arrays = await self.encode(pictures)
        return self.decoder.answer(endpoint, body, hand_off, request_id, [Arrived(array) for array in arrays])

    def ask(
        self, body: dict[str, Any], pictures: list[Image.Image] | None = None, endpoint: Endpoint = "chat"
    ) -> list[Reply | str]:
        """Everything that the decoder yields for `body`, whose image parts were made with `numbered`."""

        async def collect() -> list[Reply | str]:
            return [item async for item in await self.chat(body, pictures or [], endpoint=endpoint)]

        return self.run(collect())

    def answer(self, body: dict[str, Any], pictures: list[Image.Image] | None = None) -> dict[str, Any]:
        """The JSON of an answer that must be a good one."""
        [reply] = self.ask(body, pictures)
        assert isinstance(reply, Reply)
        assert reply.status == 200, reply.body
        return json.loads(reply.body)


@dataclass(frozen=True, eq=False)
class Arrived:
    """In the place of a reference to an array."""

    array: np.ndarray

    def __await__(self) -> Generator[None, None, np.ndarray]:
        yield
        return self.array


def numbered(pictures: list[Image.Image]) -> Any:
    """A function that makes the part of a picture as the Router leaves it, and notes the picture in `pictures`."""

    def part_of(picture: Image.Image) -> dict[str, Any]:
        pictures.append(picture)
        return {"type": "image_embeds", "image_embeds": len(pictures) - 1}

    return part_of


@contextmanager
def running_chain(model: ModelSettings, llm: LLMSettings) -> Iterator[Chain]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    chain = Chain(model, loop)
    try:
        chain.run(chain.start(llm))
        yield chain
        chain.decoder.__del__()
        del chain.decoder
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
