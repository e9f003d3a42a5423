"""The embedding store of several Routers, in a process of its own, which Serve starts, replaces and ends with them.

It calls the encoders itself, so that it owns the embeddings and a Router's death loses none. Ray does not end an
actor's calls when their caller dies: a Router therefore leaves a lifeline, the reference of a call of its own that does
not end, and awaiting that fails once its owner is gone.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import ray
from ray import ObjectRef, serve
from ray.exceptions import RayError
from ray.serve.config import DeploymentActorConfig

from encoder_pool.spans import continued_span
from router import handoff
from router.config import AppConfig
from router.embedding_store import CutImage, Embedding, EmbeddingStore
from router.encoders import Encoders
from router.metrics import StoreMetrics

MAX_CONCURRENT_CALLS = 10_000


@ray.remote(num_cpus=0, max_concurrency=MAX_CONCURRENT_CALLS)
class StoreActor:
    """An EmbeddingStore for callers in other processes; `router` is the name that a caller gives itself."""

    def __init__(self, max_bytes: int, ttl_s: float, min_tiles: int, timeout_s: float) -> None:
        handoff.set_up_tracing("EmbeddingStore")
        application = serve.get_deployment_actor_context().deployment_id.app_name
        pool = handoff.by_reference(serve.get_deployment_handle("EncoderPool", application))
        encoders = Encoders(pool, min_tiles=min_tiles, timeout_s=timeout_s)
        self._store = EmbeddingStore(encoders.encode, max_bytes, ttl_s, StoreMetrics().changed)
        self._calls: defaultdict[str, set[asyncio.Task[None]]] = defaultdict(set)
        self._left: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def find(self, router: str, name: str) -> Embedding | None:
        """See EmbeddingStore.find."""
        with self._call_of(router):
            return await self._store.find(name)

    async def encode(
        self, router: str, images: Sequence[CutImage], request_id: str, trace: Mapping[str, str]
    ) -> list[Embedding]:
        """See EmbeddingStore.encode; trace: as `trace_headers` gave it to the Router."""
        with self._call_of(router), continued_span("shared_encode", trace):
            return await self._store.encode(images, request_id)

    async def drop(self, router: str, names: Sequence[str]) -> None:
        """See EmbeddingStore.drop."""
        await self._store.drop(names)

    async def stay(self, router: str) -> None:
        """Ends when the Router has died: its reference is the lifeline."""
        await self._left[router].wait()

    async def attend(self, router: str, lifeline: Sequence[ObjectRef]) -> None:
        """Ends a Router's calls once it has died. lifeline: holds one reference, of its call of `stay`."""
        try:
            await lifeline[0]
        except RayError:
            for call in self._calls.pop(router, ()):
                call.cancel()
            self._left.pop(router).set()

    @contextmanager
    def _call_of(self, router: str) -> Iterator[None]:
        call = asyncio.current_task()
        assert call is not None, "Ray runs each call as a task"
        self._calls[router].add(call)
        try:
            yield
        finally:
            self._calls[router].discard(call)


def store_actors(config: AppConfig) -> list[DeploymentActorConfig]:
    """The store actors of the Router deployment; they divide the store's bytes. None where one Router keeps them."""
    settings = config.router
    if settings.replicas == 1:
        return []
    arguments = {
        "max_bytes": settings.embedding_store_bytes // settings.embedding_store_actors,
        "ttl_s": settings.embedding_ttl_s,
        "min_tiles": config.encoder.min_shard_tiles,
        "timeout_s": settings.encode_timeout_s,
    }
    return [
        DeploymentActorConfig(name=actor_name(index), actor_class=StoreActor, init_kwargs=arguments)
        for index in range(settings.embedding_store_actors)
    ]


def actor_name(index: int) -> str:
    """The name of a store actor within its deployment."""
    return f"embedding_store_{index}"
