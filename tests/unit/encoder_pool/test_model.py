"""The encoder computes what transformers' Llama4VisionModel and projector compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from encoder_pool.geometry import VisionGeometry
from encoder_pool.model import Llama4VisionEncoder
from encoder_pool.ops import TorchOps
from encoder_pool.weights import assemble, dummy_tensors

CPU = torch.device("cpu")


def relative_error(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.float() - b).norm() / b.norm()).item()


def build(geometry: VisionGeometry, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype) -> Llama4VisionEncoder:
    weights = assemble(geometry, tensors.__getitem__, dtype, CPU)
    return Llama4VisionEncoder(geometry, weights, TorchOps(geometry, dtype, CPU))


def random_tiles(count: int) -> np.ndarray:
    return np.random.default_rng().integers(0, 256, (count, 3, 336, 336), dtype=np.uint8)


@pytest.fixture(scope="module")
def demo(demo_geometry: VisionGeometry, make_reference: Any) -> tuple[dict[str, torch.Tensor], Any]:
    tensors = dict(dummy_tensors(demo_geometry, seed=int(np.random.default_rng().integers(1 << 30))))
    return tensors, make_reference(demo_geometry, tensors)


@pytest.mark.parametrize("count", [1, 3, 5, 17])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_parity_at_the_demo_size(
    demo_geometry: VisionGeometry, demo: tuple[dict[str, torch.Tensor], Any], count: int, dtype: Any, tolerance: float
) -> None:
    tensors, reference = demo
    tiles = random_tiles(count)
    rows = build(demo_geometry, tensors, dtype)(torch.from_numpy(tiles))
    assert rows.shape == (count * 144, 128)
    assert rows.dtype == dtype
    assert relative_error(rows, reference(tiles)) <= tolerance


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_parity_at_llama_4s_size(scout_geometry: VisionGeometry, make_reference: Any) -> None:
    tensors = dict(dummy_tensors(scout_geometry, seed=int(np.random.default_rng().integers(1 << 30))))
    inputs = [random_tiles(count) for count in (1, 5)]
    reference = make_reference(scout_geometry, tensors)
    expected = [reference(tiles) for tiles in inputs]
    for dtype, tolerance in [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)]:
        model = build(scout_geometry, tensors, dtype)
        for tiles, rows in zip(inputs, expected, strict=True):
            assert relative_error(model(torch.from_numpy(tiles)), rows) <= tolerance


def test_tiles_are_independent(demo_geometry: VisionGeometry, demo: tuple[dict[str, torch.Tensor], Any]) -> None:
    model = build(demo_geometry, demo[0], torch.float32)
    tiles = torch.from_numpy(random_tiles(3))
    together = model(tiles)
    alone = torch.cat([model(tile[None]) for tile in tiles])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)
