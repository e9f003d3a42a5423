"""Order, limits, cancellation and failures of the tile queue, with a runner that the test lets run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from encoder_pool.batcher import TileBatcher
from encoder_pool.errors import NonFiniteEmbeddingsError, QueueFullError
from encoder_pool.runner import EncodedBatch


class HeldRunner:
    """Encodes a tile to its own number; each batch waits until the test releases it."""

    concurrency = 1

    def __init__(self, batch_tiles: int = 10, poison: int | None = None) -> None:
        self._poison = poison
        self.batch_tiles = batch_tiles
        self.batches: list[list[int]] = []
        self.gate = threading.Semaphore(0)
        self.error: Exception | None = None

    def encode(self, items: Sequence[np.ndarray]) -> EncodedBatch:
        self.batches.append([int(item[0]) for item in items])
        assert self.gate.acquire(timeout=10)
        if self.error is not None:
            raise self.error
        if any(int(item[0]) == self._poison for item in items):
            raise RuntimeError("poisoned")
        return EncodedBatch(list(items), [item[0] >= 0 for item in items], padding=0, eager=0)


def make_batcher(runner: HeldRunner, max_queued_tiles: int) -> TileBatcher:
    return TileBatcher(runner, max_queued_tiles, lambda encoded, tiles, seconds: None, lambda seconds: None)


def item(number: int, tiles: int = 1) -> np.ndarray:
    return np.full(tiles, number)


async def settle() -> None:
    await asyncio.sleep(0.05)


async def test_what_waits_becomes_one_batch_in_order() -> None:
    runner = HeldRunner()
    batcher = make_batcher(runner, max_queued_tiles=100)
    tasks = [asyncio.create_task(batcher.encode(item(i))) for i in range(5)]
    await settle()
    assert batcher.queued_tiles == 4
    runner.gate.release(2)
    results = await asyncio.gather(*tasks)
    assert [int(rows[0]) for rows in results] == list(range(5))
    assert runner.batches == [[0], [1, 2, 3, 4]]
    assert batcher.queued_tiles == 0


async def test_batches_keep_to_the_budget_without_overtaking() -> None:
    runner = HeldRunner(batch_tiles=10)
    batcher = make_batcher(runner, max_queued_tiles=100)
    sizes = [1, 6, 4, 17, 1]
    tasks = [asyncio.create_task(batcher.encode(item(i, size))) for i, size in enumerate(sizes)]
    runner.gate.release(10)
    results = await asyncio.gather(*tasks)
    assert [len(rows) for rows in results] == sizes
    assert runner.batches == [[0], [1, 2], [3], [4]]


async def test_cancelled_work_that_has_not_begun_is_dropped() -> None:
    runner = HeldRunner()
    batcher = make_batcher(runner, max_queued_tiles=100)
    tasks = [asyncio.create_task(batcher.encode(item(i))) for i in range(3)]
    await settle()
    tasks[0].cancel()  # running: its result is thrown away
    tasks[1].cancel()  # waiting: never starts
    await settle()
    assert batcher.queued_tiles == 1
    runner.gate.release(2)
    assert int((await tasks[2])[0]) == 2
    assert runner.batches == [[0], [2]]


async def test_a_full_queue_refuses_but_an_empty_one_takes_any_request() -> None:
    runner = HeldRunner()
    batcher = make_batcher(runner, max_queued_tiles=3)
    first = asyncio.create_task(batcher.encode(item(0)))
    await settle()
    large = asyncio.create_task(batcher.encode(item(1, 17)))
    await settle()
    with pytest.raises(QueueFullError, match="17 tiles are waiting"):
        await batcher.encode(item(2))
    runner.gate.release(2)
    await asyncio.gather(first, large)


async def test_non_finite_output_fails_its_own_request_only() -> None:
    runner = HeldRunner()
    batcher = make_batcher(runner, max_queued_tiles=100)
    tasks = [asyncio.create_task(batcher.encode(item(i))) for i in (0, 1, -1, 3)]
    runner.gate.release(2)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[2], NonFiniteEmbeddingsError)
    assert [int(results[i][0]) for i in (0, 1, 3)] == [0, 1, 3]
    assert batcher.failure is None


async def test_a_poisoned_item_fails_alone() -> None:
    runner = HeldRunner(poison=2)
    batcher = make_batcher(runner, max_queued_tiles=100)
    tasks = [asyncio.create_task(batcher.encode(item(i))) for i in (9, 1, 2, 3)]
    runner.gate.release(10)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[2], RuntimeError)
    assert [int(results[i][0]) for i in (0, 1, 3)] == [9, 1, 3]
    assert runner.batches == [[9], [1, 2, 3], [1], [2], [0], [3]], "an empty tile tells whose fault it is"
    assert batcher.failure is None


async def test_a_runner_that_always_fails_fails_the_health() -> None:
    runner = HeldRunner()
    runner.error = RuntimeError("device lost")
    batcher = make_batcher(runner, max_queued_tiles=100)
    runner.gate.release(10)
    with pytest.raises(RuntimeError, match="device lost"):
        await batcher.encode(item(1))
    await settle()
    assert batcher.failure is runner.error


async def test_what_has_waited_too_long_is_dropped() -> None:
    runner = HeldRunner()
    batcher = make_batcher(runner, max_queued_tiles=100)
    tasks = [asyncio.create_task(batcher.encode(item(i), timeout_s)) for i, timeout_s in enumerate((60, 0.01, 60))]
    await asyncio.sleep(0.1)
    runner.gate.release(10)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert int(results[0][0]) == 0, "what has begun is finished"
    assert isinstance(results[1], TimeoutError)
    assert runner.batches == [[0], [2]]
    assert batcher.queued_tiles == 0


async def test_a_queue_of_things_too_old_leaves_the_runner_free() -> None:
    runner = HeldRunner()
    batcher = make_batcher(runner, max_queued_tiles=100)
    first = asyncio.create_task(batcher.encode(item(0)))
    await settle()
    old = asyncio.create_task(batcher.encode(item(1), 0.01))
    await settle()
    runner.gate.release(10)
    await asyncio.gather(first, old, return_exceptions=True)
    assert int((await batcher.encode(item(2)))[0]) == 2
    assert runner.batches == [[0], [2]]


async def test_a_small_request_behind_many_large_ones_waits_for_those_alone() -> None:
    """Thirty of 17 tiles in batches of at most 64 are ten batches; what comes later does not push in."""
    runner = HeldRunner(batch_tiles=64)
    batcher = make_batcher(runner, max_queued_tiles=10_000)
    large = [asyncio.create_task(batcher.encode(item(i, 17))) for i in range(30)]
    small = asyncio.create_task(batcher.encode(item(100)))
    later = [asyncio.create_task(batcher.encode(item(200 + i))) for i in range(50)]
    runner.gate.release(100)
    await asyncio.gather(*large, small, *later)
    assert next(i for i, batch in enumerate(runner.batches) if 100 in batch) <= 11
    order = [number for batch in runner.batches for number in batch]
    assert order == [*range(30), 100, *range(200, 250)]


async def test_the_load_is_what_waits_and_what_runs() -> None:
    runner = HeldRunner()
    batcher = make_batcher(runner, max_queued_tiles=100)
    calls = [asyncio.create_task(batcher.encode(item(i, tiles=4))) for i in range(2)]
    await settle()
    assert (batcher.queued_tiles, batcher.outstanding_tiles) == (4, 8)
    for _ in calls:
        runner.gate.release()
    await asyncio.gather(*calls)
    await settle()
    assert batcher.outstanding_tiles == 0
