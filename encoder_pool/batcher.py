"""First-in-first-out queue of tiles in front of a runner.

No timers: whenever the runner is free, what waits is taken in order, up to a budget of tiles, and encoded as one batch.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from encoder_pool.errors import NonFiniteEmbeddingsError, QueueFullError
from encoder_pool.runner import EncodedBatch, Runner

OnBatch = Callable[[EncodedBatch, int, float], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    tiles: np.ndarray
    rows: asyncio.Future[np.ndarray]
    deadline: float  # of the event loop's clock


class TileBatcher:
    """Belongs to one event loop; the runner works in threads of its own.

    on_batch: called on the event loop with every encoded batch, its number of tiles and the seconds it took.
    on_queue: called on the event loop with the number of waiting tiles whenever it has changed.

    `failure` is set once the runner fails on an empty tile too: the fault is not in what it was given.
    """

    def __init__(
        self, runner: Runner, max_queued_tiles: int, on_batch: OnBatch, on_queue: Callable[[int], None]
    ) -> None:
        self._runner = runner
        self._max_queued_tiles = max_queued_tiles
        self._on_batch = on_batch
        self._on_queue = on_queue
        self._queue: deque[_Waiting] = deque()
        self._threads = ThreadPoolExecutor(runner.concurrency, thread_name_prefix="encode")
        self._running: set[asyncio.Task[None]] = set()
        self.queued_tiles = 0
        self.failure: Exception | None = None

    async def encode(self, tiles: np.ndarray, timeout_s: float = math.inf) -> np.ndarray:
        """Encodes uint8 [tiles, channels, tile, tile] to its carrier array (see wire.py).

        Cancelling this before the batch that holds it has begun costs no computation, nor does a batch that would
        begin after `timeout_s`. Raises QueueFullError where the tiles that wait already would exceed the limit,
        TimeoutError, NonFiniteEmbeddingsError, and what the runner raises on these tiles alone.
        """
        # An empty queue takes any request: one that is larger than the limit could never be served otherwise.
        if self._queue and self.queued_tiles + len(tiles) > self._max_queued_tiles:
            raise QueueFullError(f"{self.queued_tiles} tiles are waiting, at most {self._max_queued_tiles} may")
        loop = asyncio.get_running_loop()
        item = _Waiting(tiles, loop.create_future(), loop.time() + timeout_s)
        self._queue.append(item)
        self._count(len(tiles))
        self._start_batches()
        try:
            return await item.rows
        finally:
            if item in self._queue:
                self._remove(item)

    def _remove(self, item: _Waiting) -> None:
        self._queue.remove(item)
        self._count(-len(item.tiles))

    def _count(self, tiles: int) -> None:
        self.queued_tiles += tiles
        self._on_queue(self.queued_tiles)

    def _start_batches(self) -> None:
        while len(self._running) < self._runner.concurrency and (batch := self._take()):
            task = asyncio.get_running_loop().create_task(self._run(batch))
            self._running.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start_batches()

    def _take(self) -> list[_Waiting]:
        now = asyncio.get_running_loop().time()
        batch: list[_Waiting] = []
        tiles = 0
        while self._queue and (not batch or tiles + len(self._queue[0].tiles) <= self._runner.batch_tiles):
            item = self._queue[0]
            self._remove(item)
            if item.deadline < now:
                item.rows.set_exception(TimeoutError("the tiles waited longer than their request may take"))
                continue
            batch.append(item)
            tiles += len(item.tiles)
        return batch

    async def _run(self, batch: list[_Waiting]) -> None:
        started = asyncio.get_running_loop().time()
        try:
            encoded = await self._encode([item.tiles for item in batch])
        except Exception as error:
            await self._find_fault(batch, error)
            return
        for item, rows, finite in zip(batch, encoded.rows, encoded.finite, strict=True):
            if item.rows.done():
                continue  # its caller left while the batch ran
            if finite:
                item.rows.set_result(rows)
            else:
                item.rows.set_exception(NonFiniteEmbeddingsError("the encoder computed NaN or infinity"))
        seconds = asyncio.get_running_loop().time() - started
        self._on_batch(encoded, sum(len(item.tiles) for item in batch), seconds)

    async def _find_fault(self, batch: list[_Waiting], error: Exception) -> None:
        """After a batch that failed: an item that fails alone too fails, the others are encoded without it."""
        if len(batch) > 1:
            for item in batch:
                await self._run([item])
            return
        [item] = batch
        if not item.rows.done():
            item.rows.set_exception(error)
        try:
            await self._encode([np.zeros_like(item.tiles[:1])])
        except Exception as broken:
            self.failure = broken

    async def _encode(self, items: list[np.ndarray]) -> EncodedBatch:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._runner.encode, items)
