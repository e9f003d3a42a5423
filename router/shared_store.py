"""What a Router keeps embeddings in: a store of its own, or the actors that several Routers share."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import ray
from ray import serve
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayTaskError

from encoder_pool.spans import trace_headers
from router.config import RouterSettings
from router.embedding_store import CutImage, Embedding, EmbeddingStore, Encode, Promise, unheard
from router.gather import gather
from router.metrics import StoreMetrics
from router.store_actor import actor_name

logger = logging.getLogger("ray.serve")


class StoreGoneError(Exception):
    """A store actor is dead, or not back yet."""


class SharedStore:
    """The store actors as one store, with EmbeddingStore's calls; a content hash decides which actor knows it.

    alone: encodes without an actor while that is gone.
    """

    def __init__(self, actors: int, alone: EmbeddingStore) -> None:
        self._router = uuid.uuid4().hex
        self._actors: list[ActorHandle | None] = [None] * actors
        self._alone = alone

    async def find(self, name: str) -> Embedding | None:
        try:
            return await self._call(self._index(name), "find", name)
        except StoreGoneError:
            return await self._alone.find(name)

    async def encode(self, images: Sequence[CutImage], request_id: str, promise: Promise = unheard) -> list[Embedding]:
        """As EmbeddingStore.encode, but that promises are not told: the actor owns what it could promise."""
        shares: defaultdict[int, list[CutImage]] = defaultdict(list)
        for cut in images:
            shares[self._index(cut.image.hash)].append(cut)
        encoded = await gather(self._encode(index, share, request_id) for index, share in shares.items())
        found = {embedding.image.hash: embedding for share in encoded for embedding in share}
        return [found[cut.image.hash] for cut in images]

    async def drop(self, names: Iterable[str]) -> None:
        shares: defaultdict[int, list[str]] = defaultdict(list)
        for name in names:
            shares[self._index(name)].append(name)
        for index, share in shares.items():
            try:
                await self._call(index, "drop", share)
            except StoreGoneError:
                await self._alone.drop(share)

    async def _encode(self, index: int, images: list[CutImage], request_id: str) -> list[Embedding]:
        try:
            return await self._call(index, "encode", images, request_id, trace_headers())
        except StoreGoneError:
            return await self._alone.encode(images, request_id)

    def _index(self, name: str) -> int:
        return int(name[:8], 16) % len(self._actors)

    async def _call(self, index: int, method: str, *args: Any) -> Any:
        """Raises StoreGoneError, and what the store raised."""
        call = getattr(self._actor(index), method).remote(self._router, *args)
        try:
            return await call
        except asyncio.CancelledError:
            # Cancelling this task alone would leave a waiter in the actor.
            ray.cancel(call)
            raise
        except RayTaskError as error:
            raise error.cause from None
        except RayActorError as error:
            logger.warning("embedding store %d is gone (%s); going on without it", index, type(error).__name__)
            self._actors[index] = None
            raise StoreGoneError from None

    def _actor(self, index: int) -> ActorHandle:
        actor = self._actors[index]
        if actor is None:
            try:
                actor = serve.get_deployment_actor(actor_name(index))
            except ValueError:
                raise StoreGoneError from None
            actor.attend.remote(self._router, [actor.stay.remote(self._router)])
            self._actors[index] = actor
        return actor


def embedding_store(settings: RouterSettings, encode: Encode) -> EmbeddingStore | SharedStore:
    """The store of a Router with these settings."""
    if settings.replicas == 1:
        return EmbeddingStore(
            encode, settings.embedding_store_bytes, settings.embedding_ttl_s, on_change=StoreMetrics().changed
        )
    alone = EmbeddingStore(encode, 0, settings.embedding_ttl_s, on_change=lambda *_: None)
    return SharedStore(settings.embedding_store_actors, alone)
