"""The runner on the GPU: staging, order, concurrency and memory."""

from __future__ import annotations

import asyncio

import numpy as np
import torch

from encoder_pool.batcher import TileBatcher
from encoder_pool.cuda_runner import CudaRunner
from encoder_pool.graphs import GraphManager
from encoder_pool.model import Llama4VisionEncoder
from tests.vision_reference import random_tiles, relative_error

GIB = 2**30


def make_runner(model: Llama4VisionEncoder, budgets: list[int], batch_tiles: int) -> CudaRunner:
    manager = GraphManager(model)
    manager.capture(budgets, 6 * GIB)
    return CudaRunner(model, manager, batch_tiles)


def check(model: Llama4VisionEncoder, tiles: np.ndarray, rows: np.ndarray) -> None:
    expected = model(torch.from_numpy(tiles.copy()).to(model.device)).float().cpu()
    assert relative_error(torch.from_numpy(rows).view(torch.bfloat16), expected) <= 1e-2


def test_batches_smaller_and_larger_than_a_slot(small: Llama4VisionEncoder) -> None:
    runner = make_runner(small, [1, 5, 17, 34], batch_tiles=34)
    for sizes in ([1], [17], [34], [35], [5, 17, 17, 30, 1], [200]):
        items = [random_tiles(size) for size in sizes]
        encoded = runner.encode(items)
        assert encoded.finite == [True] * len(items)
        for item, rows in zip(items, encoded.rows, strict=True):
            check(small, item, rows)


async def test_concurrent_requests_through_the_queue(small: Llama4VisionEncoder) -> None:
    runner = make_runner(small, list(range(1, 18)), batch_tiles=64)
    batcher = TileBatcher(runner, 10_000, lambda encoded, tiles, seconds: None, lambda seconds: None)
    items = [random_tiles(int(size)) for size in np.random.default_rng().integers(1, 18, 100)]
    results = await asyncio.gather(*(batcher.encode(item) for item in items))
    for item, rows in zip(items, results, strict=True):
        check(small, item, rows)


def test_results_outlive_later_batches(small: Llama4VisionEncoder) -> None:
    runner = make_runner(small, [1, 17], batch_tiles=17)
    first = runner.encode([random_tiles(17)]).rows[0]
    kept = first.copy()
    for _ in range(20):
        runner.encode([random_tiles(17)])
    assert np.array_equal(first, kept)


def test_memory_returns_to_its_level(small: Llama4VisionEncoder, device: torch.device) -> None:
    runner = make_runner(small, list(range(1, 18)), batch_tiles=64)
    sizes = np.random.default_rng().integers(1, 65, 1000)
    items = random_tiles(64)

    def level() -> tuple[int, int]:
        torch.cuda.synchronize(device)
        return torch.cuda.memory_allocated(device), torch.cuda.mem_get_info(device)[0]

    for size in range(1, 65):
        runner.encode([items[:size]])
    before = level()
    for size in sizes:
        runner.encode([items[:size]])
    assert level() == before


def test_the_whole_encoder_from_host_to_host(scout: Llama4VisionEncoder) -> None:
    runner = make_runner(scout, [1, 17], batch_tiles=17)
    for count in (1, 5, 17, 20):
        tiles = random_tiles(count)
        check(scout, tiles, runner.encode([tiles]).rows[0])
