"""First-in-first-out queue of tiles in front of a runner.

No timers: whenever the runner is free, what waits is taken in order, up to a budget of tiles, and encoded as one batch.
"""

from __future__ import annotations

import asyncio
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


class TileBatcher:
    """Belongs to one event loop; the runner works in threads of its own.

    on_batch: called on the event loop with every encoded batch, its number of tiles and the seconds it took.
    on_queue: called on the event loop with the number of waiting tiles whenever it has changed.
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

    async def encode(self, tiles: np.ndarray) -> np.ndarray:
        """Encodes uint8 [tiles, channels, tile, tile] to its carrier array (see wire.py).

        Cancelling this before the batch that holds it has begun costs no computation. Raises QueueFullError where
        the tiles that wait already would exceed the limit, and NonFiniteEmbeddingsError.
        """
        # An empty queue takes any request: one that is larger than the limit could never be served otherwise.
        if self._queue and self.queued_tiles + len(tiles) > self._max_queued_tiles:
            raise QueueFullError(f"{self.queued_tiles} tiles are waiting, at most {self._max_queued_tiles} may")
        item = _Waiting(tiles, asyncio.get_running_loop().create_future())
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
        while self._queue and len(self._running) < self._runner.concurrency:
            task = asyncio.get_running_loop().create_task(self._run(self._take()))
            self._running.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start_batches()

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        tiles = 0
        while self._queue and (not batch or tiles + len(self._queue[0].tiles) <= self._runner.batch_tiles):
            batch.append(self._queue[0])
            tiles += len(batch[-1].tiles)
            self._remove(batch[-1])
        return batch

    async def _run(self, batch: list[_Waiting]) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            encoded = await loop.run_in_executor(self._threads, self._runner.encode, [item.tiles for item in batch])
        except Exception as error:
            self.failure = error
            for item in batch:
                if not item.rows.done():
                    item.rows.set_exception(error)
            return
        for item, rows, finite in zip(batch, encoded.rows, encoded.finite, strict=True):
            if item.rows.done():
                continue  # its caller left while the batch ran
            if finite:
                item.rows.set_result(rows)
            else:
                item.rows.set_exception(NonFiniteEmbeddingsError("the encoder computed NaN or infinity"))
        self._on_batch(encoded, sum(len(item.tiles) for item in batch), loop.time() - started)
