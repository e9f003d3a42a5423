"""First-in-first-out queue of tiles in front of a runner.

No timers: whenever the runner is free, what waits is taken in order, up to a budget of tiles, and encoded as one batch.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from encoder_pool.errors import NonFiniteEmbeddingsError, QueueFullError
from encoder_pool.runner import EncodedBatch, Runner
from encoder_pool.spans import past_span

OnBatch = Callable[[EncodedBatch, int, float], None]


@dataclass(slots=True, eq=False)
class _Waiting:
    """taken_ns: when a batch took it, as of `time.time_ns()`."""

    tiles: np.ndarray
    rows: asyncio.Future[np.ndarray]
    deadline: float  # of the event loop's clock
    taken_ns: int = 0


class TileBatcher:
    """Belongs to one event loop; the runner works in threads of its own.

    on_batch: called on the event loop with every encoded batch, its number of tiles and the seconds it took.
    on_wait: called on the event loop with the seconds that an item waited before a batch took it.

    `failure` is set once the runner fails on an empty tile too: the fault is not in what it was given.
    """

    def __init__(
        self, runner: Runner, max_queued_tiles: int, on_batch: OnBatch, on_wait: Callable[[float], None]
    ) -> None:
        self._runner = runner
        self._max_queued_tiles = max_queued_tiles
        self._on_batch = on_batch
        self._on_wait = on_wait
        self._queue: deque[_Waiting] = deque()
        self._threads = ThreadPoolExecutor(runner.concurrency, thread_name_prefix="encode")
        self._running: set[asyncio.Task[None]] = set()
        self.queued_tiles = 0
        self._running_tiles = 0
        self.failure: Exception | None = None

    @property
    def outstanding_tiles(self) -> int:
        """Tiles that wait or are being encoded."""
        return self.queued_tiles + self._running_tiles

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
        queued_ns = time.time_ns()
        self._queue.append(item)
        self.queued_tiles += len(tiles)
        self._start_batches()
        try:
            rows = await item.rows
        finally:
            if item in self._queue:
                self._remove(item)
        self._on_wait((item.taken_ns - queued_ns) / 1e9)
        past_span("queue", queued_ns, item.taken_ns)
        past_span("encode", item.taken_ns)
        return rows

    def _remove(self, item: _Waiting) -> None:
        self._queue.remove(item)
        self.queued_tiles -= len(item.tiles)

    def _start_batches(self) -> None:
        while len(self._running) < self._runner.concurrency and (batch := self._take()):
            tiles = sum(len(item.tiles) for item in batch)
            task = asyncio.get_running_loop().create_task(self._run(batch))
            self._running.add(task)
            self._running_tiles += tiles
            task.add_done_callback(partial(self._finished, tiles))

    def _finished(self, tiles: int, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._running_tiles -= tiles
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
            item.taken_ns = time.time_ns()
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
