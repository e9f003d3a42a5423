"""Fused encoder on the GPU against transformers in float32, and against transformers' own bfloat16 error."""

from __future__ import annotations

import pytest
import torch

from encoder_pool.model import Llama4VisionEncoder
from encoder_pool.ops import TorchOps
from encoder_pool.weights import assemble
from tests.vision_reference import DEMO, SCOUT, make_reference, random_tiles, relative_error


@pytest.mark.parametrize("count", [1, 5, 17])
def test_bfloat16_is_at_least_as_exact_as_transformers(
    scout: Llama4VisionEncoder, scout_tensors: dict[str, torch.Tensor], device: torch.device, count: int
) -> None:
    tiles = random_tiles(count)
    expected = make_reference(SCOUT, scout_tensors)(tiles)
    half = {name: tensor.bfloat16() for name, tensor in scout_tensors.items()}
    theirs = relative_error(make_reference(SCOUT, half)(tiles), expected)
    ours = relative_error(scout(torch.from_numpy(tiles).to(device)), expected)
    print(f"{count} tiles: relative error {ours:.4f}, transformers in bfloat16 {theirs:.4f}")
    assert ours <= theirs
    assert ours <= 2e-2


@pytest.mark.parametrize("count", [1, 17])
def test_fp8_stays_within_its_bound(
    scout_fp8: Llama4VisionEncoder, scout_tensors: dict[str, torch.Tensor], device: torch.device, count: int
) -> None:
    tiles = random_tiles(count)
    expected = make_reference(SCOUT, scout_tensors)(tiles)
    error = relative_error(scout_fp8(torch.from_numpy(tiles).to(device)), expected)
    print(f"{count} tiles: relative error {error:.4f} in fp8")
    assert error <= 6e-2


def test_plain_pytorch_on_the_gpu_in_float32(scout_tensors: dict[str, torch.Tensor], device: torch.device) -> None:
    tiles = random_tiles(2)
    weights = assemble(SCOUT, scout_tensors.__getitem__, torch.float32, device)
    model = Llama4VisionEncoder(SCOUT, weights, TorchOps(SCOUT, torch.float32, device))
    error = relative_error(model(torch.from_numpy(tiles).to(device)), make_reference(SCOUT, scout_tensors)(tiles))
    assert error <= 1e-5


def test_the_demo_size_works_too(small: Llama4VisionEncoder, device: torch.device) -> None:
    rows = small(torch.from_numpy(random_tiles(3)).to(device))
    assert rows.shape == (3 * 144, DEMO.text_width)
    assert torch.isfinite(rows).all()
