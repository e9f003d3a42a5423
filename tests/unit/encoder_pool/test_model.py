"""The encoder computes what transformers' Llama4VisionModel and projector compute."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from encoder_pool.geometry import VisionGeometry
from encoder_pool.model import Llama4VisionEncoder
from encoder_pool.ops import TorchOps
from encoder_pool.weights import assemble, dummy_tensors
from tests.vision_reference import DEMO, SCOUT, Reference, make_reference, random_tiles, relative_error

CPU = torch.device("cpu")
TOLERANCES = [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)]


def fresh_tensors(geometry: VisionGeometry) -> dict[str, torch.Tensor]:
    return dict(dummy_tensors(geometry, seed=int(np.random.default_rng().integers(1 << 30))))


def build(geometry: VisionGeometry, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype) -> Llama4VisionEncoder:
    weights = assemble(geometry, tensors.__getitem__, dtype, CPU)
    return Llama4VisionEncoder(geometry, weights, TorchOps(geometry, dtype, CPU))


@pytest.fixture(scope="module")
def demo() -> tuple[dict[str, torch.Tensor], Reference]:
    tensors = fresh_tensors(DEMO)
    return tensors, make_reference(DEMO, tensors)


@pytest.mark.parametrize("count", [1, 3, 5, 17])
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_parity_at_the_demo_size(
    demo: tuple[dict[str, torch.Tensor], Reference], count: int, dtype: torch.dtype, tolerance: float
) -> None:
    tensors, reference = demo
    tiles = random_tiles(count)
    rows = build(DEMO, tensors, dtype)(torch.from_numpy(tiles))
    assert rows.shape == (count * 144, 128)
    assert rows.dtype == dtype
    assert relative_error(rows, reference(tiles)) <= tolerance


@pytest.fixture(scope="module")
def scout() -> tuple[dict[str, torch.Tensor], list[np.ndarray], list[torch.Tensor]]:
    """Random weights at Llama 4's size, 1 and 5 tiles, and what transformers makes of them."""
    tensors = fresh_tensors(SCOUT)
    inputs = [random_tiles(count) for count in (1, 5)]
    reference = make_reference(SCOUT, tensors)
    return tensors, inputs, [reference(tiles) for tiles in inputs]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_parity_at_llama_4s_size(
    scout: tuple[dict[str, torch.Tensor], list[np.ndarray], list[torch.Tensor]], dtype: torch.dtype, tolerance: float
) -> None:
    tensors, inputs, expected = scout
    model = build(SCOUT, tensors, dtype)
    for tiles, rows in zip(inputs, expected, strict=True):
        assert relative_error(model(torch.from_numpy(tiles)), rows) <= tolerance


def test_the_models_weights_are_not_changed(demo: tuple[dict[str, torch.Tensor], Reference]) -> None:
    before = {name: tensor.clone() for name, tensor in demo[0].items()}
    build(DEMO, demo[0], torch.float32)(torch.from_numpy(random_tiles(1)))
    assert all(torch.equal(tensor, before[name]) for name, tensor in demo[0].items())


def test_tiles_are_independent(demo: tuple[dict[str, torch.Tensor], Reference]) -> None:
    model = build(DEMO, demo[0], torch.float32)
    tiles = torch.from_numpy(random_tiles(3))
    together = model(tiles)
    alone = torch.cat([model(tile[None]) for tile in tiles])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)
