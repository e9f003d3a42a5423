"""Content hash -> the embedding's references, or the encode that is under way.

A hit costs no encode, and neither does an image that is being encoded for another request. References are owned by this
process; dropping the last one frees the object. Nothing here knows how images are encoded.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from ray import ObjectRef

from encoder_pool.wire import EmbeddingDtype, ImageShard
from router.handoff import detached_context


@dataclass(frozen=True, slots=True, eq=False)
class CutImage:
    """An image to encode. image: the whole of it; pixels: its tiles, uint8 [tiles, 3, 336, 336]."""

    image: ImageShard
    pixels: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Embedding:
    """Where the embedding of one image lies. refs: one an array (see wire.HandOff), in order; bytes: of them all."""

    image: ImageShard
    dtype: EmbeddingDtype
    fingerprint: str
    refs: tuple[ObjectRef, ...]
    bytes: int


# Told what an encode will return if nothing goes wrong, once that is known before its end.
Promise = Callable[[list[Embedding]], None]
Encode = Callable[[Sequence[CutImage], str, Promise], Awaitable[list[Embedding]]]
OnChange = Callable[[int, int], None]


def unheard(embeddings: list[Embedding]) -> None:
    """The Promise of those who wait for the end."""


@dataclass(slots=True, eq=False)
class _SharedEncode:
    """One encode of several images; `task` ends when the last waiter leaves."""

    task: asyncio.Task[dict[str, Embedding]]
    waiters: int = 0


class EmbeddingStore:
    """Belongs to one event loop. Whoever waits in one of its calls leaves by cancelling the call.

    encode: called with distinct images and the id of the request that came first.
    max_bytes: of finished embeddings that are kept, least recently used ones go first; 0 keeps none.
    ttl_s: seconds after its encode that an embedding is kept at most.
    on_change: called with the bytes that are kept, and with how many embeddings had to make room, after each encode.
    """

    def __init__(self, encode: Encode, max_bytes: int, ttl_s: float, on_change: OnChange) -> None:
        self._encode = encode
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._on_change = on_change
        self._kept: OrderedDict[str, tuple[Embedding, float]] = OrderedDict()
        self._running: dict[str, _SharedEncode] = {}
        self.bytes = 0

    async def find(self, name: str) -> Embedding | None:
        """The embedding of that content hash, if it is kept or being encoded. Raises what the encode raises."""
        kept = self._use(name)
        if kept is None and name in self._running:
            return (await self._wait([self._running[name]]))[name]
        return kept

    async def encode(self, images: Sequence[CutImage], request_id: str, promise: Promise = unheard) -> list[Embedding]:
        """The embeddings of `images`, in order; those that are neither kept nor being encoded are encoded together.

        promise: told only of images that are distinct, and neither kept nor being encoded.
        Raises what an encode raises.
        """
        names = [cut.image.hash for cut in images]
        kept = {name: embedding for name in names if (embedding := self._use(name)) is not None}
        missing = {cut.image.hash: cut for cut in images if cut.image.hash not in kept.keys() | self._running.keys()}
        if missing:
            promise = promise if len(missing) == len(images) else unheard
            shared = _SharedEncode(self._run(list(missing.values()), request_id, promise))
            self._running |= dict.fromkeys(missing, shared)
            shared.task.add_done_callback(lambda _: self._finish(shared))
        encoded = await self._wait([self._running[name] for name in names if name not in kept])
        found = kept | encoded
        return [found[name] for name in names]

    def _use(self, name: str) -> Embedding | None:
        """What is kept under that name, which is now the most recently used."""
        self._expire()
        if name not in self._kept:
            return None
        self._kept.move_to_end(name)
        return self._kept[name][0]

    async def drop(self, names: Iterable[str]) -> None:
        """Forgets embeddings that turned out to be lost."""
        for name in names:
            self._remove(name)

    async def _wait(self, encodes: Iterable[_SharedEncode]) -> dict[str, Embedding]:
        distinct = {id(shared): shared for shared in encodes}.values()
        for shared in distinct:
            shared.waiters += 1
        try:
            embeddings: dict[str, Embedding] = {}
            for shared in distinct:
                # Shielded: this request may leave, others still wait for the same encode.
                embeddings |= await asyncio.shield(shared.task)
            return embeddings
        finally:
            for shared in distinct:
                self._leave(shared)

    def _run(self, images: list[CutImage], request_id: str, promise: Promise) -> asyncio.Task[dict[str, Embedding]]:
        async def encode() -> dict[str, Embedding]:
            embeddings = await self._encode(images, request_id, promise)
            return {embedding.image.hash: embedding for embedding in embeddings}

        return asyncio.get_running_loop().create_task(encode(), context=detached_context(request_id))

    def _finish(self, shared: _SharedEncode) -> None:
        self._forget_running(shared)
        # Asking for the exception also marks it as seen, when every waiter has left.
        if not shared.task.cancelled() and shared.task.exception() is None:
            evicted = sum(self._keep(name, embedding) for name, embedding in shared.task.result().items())
            self._on_change(self.bytes, evicted)

    def _leave(self, shared: _SharedEncode) -> None:
        shared.waiters -= 1
        if not shared.waiters and not shared.task.done():
            # Nobody may join an encode that is about to end.
            self._forget_running(shared)
            shared.task.cancel()

    def _forget_running(self, shared: _SharedEncode) -> None:
        self._running = {name: other for name, other in self._running.items() if other is not shared}

    def _keep(self, name: str, embedding: Embedding) -> int:
        """How many others it pushed out."""
        self._remove(name)
        if embedding.bytes > self._max_bytes:
            return 0
        self._kept[name] = embedding, asyncio.get_running_loop().time() + self._ttl_s
        self.bytes += embedding.bytes
        evicted = 0
        while self.bytes > self._max_bytes:
            self._remove(next(iter(self._kept)))
            evicted += 1
        return evicted

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        for name in [name for name, (_, expires) in self._kept.items() if expires <= now]:
            self._remove(name)

    def _remove(self, name: str) -> None:
        if name in self._kept:
            embedding, _ = self._kept.pop(name)
            self.bytes -= embedding.bytes
