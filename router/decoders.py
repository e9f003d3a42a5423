"""The decoder pool as the Router sees it: a request and its embeddings in, the beginning of an answer out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from encoder_pool.wire import HandOff
from llm_pool.errors import error_event
from llm_pool.reply import Endpoint, Reply
from router import handoff
from router.config import RouterSettings
from router.embedding_store import Embedding
from router.errors import ApiError, unavailable
from router.memory_budget import MemoryBudget
from router.metrics import RouterMetrics

logger = logging.getLogger("ray.serve")

BROKEN_STREAM = ApiError(500, "the decoder failed while it was answering", code="decoder_failed")


@dataclass(frozen=True, slots=True)
class Answer:
    """head: the status and the whole body, or a stream's first chunk; rest: the chunks after it."""

    head: Reply
    rest: AsyncIterator[str]


class Decoders:
    """Calls the pool; one for the life of a Router. budget: of the embeddings that calls hold."""

    def __init__(
        self, handle: DeploymentHandle, settings: RouterSettings, budget: MemoryBudget, metrics: RouterMetrics
    ) -> None:
        self._handle = handle
        self._settings = settings
        self._budget = budget
        self._metrics = metrics

    async def answer(
        self,
        endpoint: Endpoint,
        body: dict[str, Any],
        embeddings: list[Embedding],
        request_id: str,
        embed: asyncio.Future[list[Embedding]] | None = None,
    ) -> Answer:
        """An answer's beginning; a decoder's own refusals, and a lost embedding, come as a Reply with their status.

        embed: what makes the embeddings, where that still goes on; only then the decoder's time begins to count.
        Raises ApiError where no decoder is left, has room or answers in time; RayActorError where one died.
        """
        items = self._items(endpoint, body, embeddings, request_id)
        called = asyncio.get_running_loop().time()
        with self._metrics.stage("first_chunk"):
            first = asyncio.ensure_future(anext(items))
            try:
                if embed is not None:
                    await asyncio.wait({first, embed}, return_when=asyncio.FIRST_COMPLETED)
                async with asyncio.timeout(self._settings.first_chunk_timeout_s):
                    head = await first
            except BaseException as error:
                first.cancel()
                await asyncio.wait({first})
                await items.aclose()
                if isinstance(error, handoff.PoolGoneError | DeploymentUnavailableError):
                    raise unavailable("no decoder is running", "decoder_unavailable") from None
                if isinstance(error, TimeoutError):
                    raise unavailable("the decoder did not answer in time", "decoder_timeout") from None
                if isinstance(error, BackPressureError):
                    raise ApiError(429, "too many requests are waiting", retry_after_s=1) from None
                raise
        self._metrics.handed_off(asyncio.get_running_loop().time() - called - head.seconds)
        return Answer(head, _rest(items, endpoint, request_id, self._settings.chunk_timeout_s))

    async def _items(
        self, endpoint: Endpoint, body: dict[str, Any], embeddings: list[Embedding], request_id: str
    ) -> AsyncGenerator[Any, None]:
        """The items of handoff.decode. Ray keeps a call's arguments until its end, so their room is held until then."""
        hand_off = None
        if embeddings:
            images = tuple(embedding.image for embedding in embeddings)
            hand_off = HandOff(embeddings[0].dtype, embeddings[0].fingerprint, images)
        refs = [ref for embedding in embeddings for ref in embedding.refs]
        with self._budget.hold({embedding.image.hash: embedding.bytes for embedding in embeddings}):
            async with aclosing(handoff.decode(self._handle, endpoint, body, hand_off, request_id, refs)) as items:
                async for item in items:
                    yield item


async def _rest(
    items: AsyncGenerator[Any, None], endpoint: Endpoint, request_id: str, timeout_s: float
) -> AsyncIterator[str]:
    """A stream's chunks after the first; a decoder that dies or falls silent becomes an error event, without [DONE]."""
    async with aclosing(items):
        try:
            while True:
                async with asyncio.timeout(timeout_s):
                    chunk = await anext(items)
                yield chunk
        except StopAsyncIteration:
            return
        except (RayActorError, TimeoutError) as error:
            logger.warning("request %s: stream broken off by %s", request_id, type(error).__name__)
            yield error_event(BROKEN_STREAM.body(), endpoint)
