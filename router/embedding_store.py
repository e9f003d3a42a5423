"""Content hash -> the embedding's references, or the encode that is under way.

A hit costs no encode, and neither does an image that is being encoded for another request. References are owned by this
process; dropping the last one frees the object. Nothing here knows how images are encoded.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray import ObjectRef

from encoder_pool.wire import EmbeddingDtype, ImageShard


@dataclass(frozen=True, slots=True, eq=False)
class CutImage:
    """An image to encode. image: the whole of it; pixels: its tiles, uint8 [tiles, 3, 336, 336]."""

    image: ImageShard
    pixels: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """Where the embedding of one image lies. refs: one an array (see wire.HandOff), in order; bytes: of them all."""

    image: ImageShard
    dtype: EmbeddingDtype
    fingerprint: str
    refs: tuple[ObjectRef, ...]
    bytes: int


Encode = Callable[[Sequence[CutImage], str], Awaitable[list[Embedding]]]


@dataclass(slots=True, eq=False)
class _SharedEncode:
    """One encode of several images; `task` ends when the last waiter leaves."""

    task: asyncio.Task[dict[str, Embedding]]
    waiters: int = 0


@dataclass(slots=True, eq=False)
class Claim:
    """One request's hold on one image: it can be awaited until it is released."""

    _hash: str
    _store: EmbeddingStore
    _found: Embedding | _SharedEncode
    _released: bool = field(default=False, init=False)

    async def embedding(self) -> Embedding:
        """Raises what the encode raised."""
        if isinstance(self._found, Embedding):
            return self._found
        # Shielded: this request may leave, others still wait for the same encode.
        return (await asyncio.shield(self._found.task))[self._hash]

    def release(self) -> None:
        if not self._released:
            self._released = True
            if isinstance(self._found, _SharedEncode):
                self._store._leave(self._found)


class EmbeddingStore:
    """Belongs to one event loop.

    encode: called with distinct images and the id of the request that came first.
    max_bytes: of finished embeddings that are kept, least recently used ones go first; 0 keeps none.
    ttl_s: seconds after its encode that an embedding is kept at most.
    """

    def __init__(self, encode: Encode, max_bytes: int, ttl_s: float) -> None:
        self._encode = encode
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._kept: OrderedDict[str, tuple[Embedding, float]] = OrderedDict()
        self._running: dict[str, _SharedEncode] = {}
        self.bytes = 0

    def claim(self, name: str) -> Claim | None:
        """A claim on the image of that content hash, if it is kept or being encoded."""
        self._expire()
        if name in self._kept:
            self._kept.move_to_end(name)
            return Claim(name, self, self._kept[name][0])
        if name in self._running:
            self._running[name].waiters += 1
            return Claim(name, self, self._running[name])
        return None

    def start(self, images: Sequence[CutImage], request_id: str) -> list[Claim]:
        """A claim on each image; those that are neither kept nor being encoded are encoded together."""
        claims = {cut.image.hash: self.claim(cut.image.hash) for cut in images}
        missing = {cut.image.hash: cut for cut in images if claims[cut.image.hash] is None}
        if missing:
            shared = _SharedEncode(self._run(list(missing.values()), request_id))
            for name in missing:
                self._running[name] = shared
            shared.task.add_done_callback(lambda _: self._finish(shared))
        # Equal images of one request share an encode, each with a claim of its own.
        return [self._surely(cut.image.hash, claims.pop(cut.image.hash, None)) for cut in images]

    def drop(self, names: Iterable[str]) -> None:
        """Forgets embeddings that turned out to be lost."""
        for name in names:
            self._remove(name)

    def _surely(self, name: str, claim: Claim | None) -> Claim:
        claim = claim or self.claim(name)
        assert claim is not None, "an image that was just started is being encoded"
        return claim

    def _run(self, images: list[CutImage], request_id: str) -> asyncio.Task[dict[str, Embedding]]:
        async def encode() -> dict[str, Embedding]:
            embeddings = await self._encode(images, request_id)
            return {embedding.image.hash: embedding for embedding in embeddings}

        # Serve cancels, with a request, every task of that request's context. This one may outlive the request.
        return asyncio.get_running_loop().create_task(encode(), context=contextvars.Context())

    def _finish(self, shared: _SharedEncode) -> None:
        self._forget_running(shared)
        # Asking for the exception also marks it as seen, when every waiter has left.
        if not shared.task.cancelled() and shared.task.exception() is None:
            for name, embedding in shared.task.result().items():
                self._keep(name, embedding)

    def _leave(self, shared: _SharedEncode) -> None:
        shared.waiters -= 1
        if not shared.waiters and not shared.task.done():
            # Nobody may join an encode that is about to end.
            self._forget_running(shared)
            shared.task.cancel()

    def _forget_running(self, shared: _SharedEncode) -> None:
        self._running = {name: other for name, other in self._running.items() if other is not shared}

    def _keep(self, name: str, embedding: Embedding) -> None:
        self._remove(name)
        if embedding.bytes > self._max_bytes:
            return
        self._kept[name] = embedding, asyncio.get_running_loop().time() + self._ttl_s
        self.bytes += embedding.bytes
        while self.bytes > self._max_bytes:
            self._remove(next(iter(self._kept)))

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        for name in [name for name, (_, expires) in self._kept.items() if expires <= now]:
            self._remove(name)

    def _remove(self, name: str) -> None:
        found: Any = self._kept.pop(name, None)
        if found is not None:
            self.bytes -= found[0].bytes
