"""The Serve deployment that answers OpenAI requests from embeddings."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from ray import serve
from ray.exceptions import RayError

from encoder_pool.heaps import HeapTrimmer
from encoder_pool.settings import LOAD_SIGNAL, ModelSettings
from encoder_pool.wire import HandOff
from llm_pool.coalesce import Pace, coalesce
from llm_pool.embeddings import check_hand_off, rebuild
from llm_pool.engine import Engine
from llm_pool.errors import EmbeddingLostError, EncoderMismatchError, RefusedError
from llm_pool.placement import place
from llm_pool.reply import Endpoint, Reply
from llm_pool.settings import LLMSettings

logger = logging.getLogger("ray.serve")

# Beside a GPU. Ray leaves a replica one, which takes 3 to 5 ms to look through the embeddings of a 17-tile picture.
REBUILD_THREADS = 4
# Looked through on the event loop: sooner done than another thread has begun, while vLLM makes the prompt on this one.
INLINE_TILES = 2


class LLMPool:
    """One replica: a whole vLLM engine, its workers on one or several GPUs or on the CPU."""

    async def __init__(self, model: ModelSettings, llm: LLMSettings) -> None:  # type: ignore[misc]
        self._pace = Pace(llm.chunk_window_s, llm.max_chunks_per_s)
        self._mismatch_logged = False
        self._heaps = HeapTrimmer()
        if llm.gpus_per_node:
            torch.set_num_threads(min(REBUILD_THREADS, len(os.sched_getaffinity(0))))
        self._engine = await Engine.start(model, llm)

    async def answer(
        self,
        endpoint: Endpoint,
        body: dict[str, Any],
        hand_off: HandOff | None,
        request_id: str,
        arrays: Sequence[Awaitable[np.ndarray]] = (),
    ) -> AsyncGenerator[Reply | str, None]:
        """Answers a request of `endpoint`: first a Reply, then for a stream its other chunks.

        body: as vLLM takes it, except that a placeholder (see image_parts.py) stands where image i of `hand_off` was;
        None for a text-only request. arrays: references of the images' arrays (see HandOff), which need not exist yet:
        vLLM makes its prompt meanwhile. A stream's first chunk waits for the first token: what fails before is a Reply
        with its status, what fails after is an error event that ends the stream.
        """
        came_ns = time.time_ns()
        values: asyncio.Task[list[torch.Tensor]] | None = None
        try:
            if hand_off is not None:
                check_hand_off(hand_off, self._engine.spec)
                values = asyncio.create_task(self._values(hand_off, arrays, came_ns))
                # The engine may refuse the request and never ask.
                values.add_done_callback(lambda done: done.cancelled() or done.exception())
            answer = await self._engine.answer(endpoint, body, request_id, hand_off, values)
        except RefusedError as error:
            self._log(error, request_id)
            lost = isinstance(error, EmbeddingLostError)
            yield Reply(error.status, False, error.body(), lost=lost, seconds=_since(came_ns))
            return
        finally:
            if values is not None:
                values.cancel()
        if isinstance(answer, Reply):
            yield replace(answer, seconds=_since(came_ns))
            return
        chunks = coalesce(answer, self._pace)
        try:
            first = await anext(chunks)
            yield Reply(200, True, first, seconds=_since(came_ns))
            async for chunk in chunks:
                yield chunk
        finally:
            # Not left to the garbage collector: it is what ends the request in the engine.
            await chunks.aclose()

    async def _values(
        self, hand_off: HandOff, arrays: Sequence[Awaitable[np.ndarray]], came_ns: int
    ) -> list[torch.Tensor]:
        """The embedding of each image, once its arrays are here. Raises EmbeddingLostError, EmbeddingError."""
        try:
            here = await asyncio.gather(*arrays)
        except RayError as error:
            raise EmbeddingLostError(f"an embedding did not arrive ({type(error).__name__})") from error
        here_ns = time.time_ns()
        self._engine.metrics.stage("arrive", came_ns, here_ns)
        check = partial(rebuild, hand_off.images, here, self._engine.spec)
        small = sum(image.tiles for image in hand_off.images) <= INLINE_TILES
        values = check() if small else await asyncio.to_thread(check)
        self._engine.metrics.stage("rebuild", here_ns)
        return values

    def _log(self, error: RefusedError, request_id: str) -> None:
        if isinstance(error, EncoderMismatchError):
            # Every image request will fail in the same way until someone acts: once is loud enough.
            if self._mismatch_logged:
                return
            self._mismatch_logged = True
        logger.error("request %s refused, %s: %s", request_id, error.code, error.message)

    async def models(self) -> dict[str, Any]:
        """The answer of GET /v1/models."""
        return await self._engine.models()

    async def stats(self) -> dict[str, int]:
        """unfinished: requests that wait or run in the engine."""
        return {"unfinished": self._engine.unfinished_requests()}

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What Serve's autoscaler is told: sequences that wait or run in the engine."""
        return {LOAD_SIGNAL: self._engine.unfinished_requests()}

    async def check_health(self) -> None:
        """Raises once the engine has died: Serve then replaces the replica."""
        await self._engine.check_health()
        if await self._heaps.trim_when_due():
            self._engine.trim_workers()

    def __del__(self) -> None:
        # Serve calls this when it stops a replica; a replica whose start failed has no engine.
        engine = getattr(self, "_engine", None)
        if engine is not None:
            engine.shutdown()


def _since(start_ns: int) -> float:
    return (time.time_ns() - start_ns) / 1e9


def llm_deployment(settings: LLMSettings) -> serve.Deployment:
    """The deployment `LLMPool`, sized and placed by its settings, whose `gpus_per_node` must be set (see `resolve`).

    Bind it with (ModelSettings, LLMSettings).
    """
    return serve.deployment(LLMPool).options(
        name="LLMPool",
        num_replicas=settings.replicas,
        max_ongoing_requests=settings.max_ongoing_requests,
        **place(settings).serve_options,
    )
