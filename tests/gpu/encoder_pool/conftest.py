"""Encoders on the GPU, at Llama 4's and at the demo's size."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from encoder_pool.geometry import VisionGeometry
from encoder_pool.model import Llama4VisionEncoder
from encoder_pool.ops import EncoderOps, TorchOps
from encoder_pool.weights import assemble, dummy_tensors
from tests.vision_reference import DEMO, SCOUT


@pytest.fixture(scope="session")
def device() -> torch.device:
    # Errors are measured against a float32 that is one.
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch.device("cuda", torch.cuda.current_device())


def fresh_tensors(geometry: VisionGeometry, device: torch.device) -> dict[str, torch.Tensor]:
    seed = int(np.random.default_rng().integers(1 << 30))
    return {name: tensor.to(device) for name, tensor in dummy_tensors(geometry, seed)}


@pytest.fixture(scope="session")
def scout_tensors(device: torch.device) -> dict[str, torch.Tensor]:
    """Random weights at Llama 4 Scout's dimensions, float32."""
    return fresh_tensors(SCOUT, device)


def build(
    geometry: VisionGeometry, tensors: Mapping[str, torch.Tensor], ops: EncoderOps, device: torch.device
) -> Llama4VisionEncoder:
    dtype = ops.dtype if isinstance(ops, TorchOps) else torch.bfloat16
    return Llama4VisionEncoder(geometry, assemble(geometry, tensors.__getitem__, dtype, device), ops)


@pytest.fixture(scope="session")
def scout(scout_tensors: dict[str, torch.Tensor], device: torch.device) -> Llama4VisionEncoder:
    """The fused bfloat16 encoder at Scout's dimensions."""
    from encoder_pool.fused_ops import FusedOps

    return build(SCOUT, scout_tensors, FusedOps(SCOUT, device), device)


@pytest.fixture(scope="session")
def scout_fp8(scout_tensors: dict[str, torch.Tensor], device: torch.device) -> Llama4VisionEncoder:
    from encoder_pool.fused_ops import FusedFp8Ops

    return build(SCOUT, scout_tensors, FusedFp8Ops(SCOUT, device), device)


@pytest.fixture(scope="session")
def small(device: torch.device) -> Llama4VisionEncoder:
    """The fused encoder at the demo's size: quick to capture."""
    from encoder_pool.fused_ops import FusedOps

    return build(DEMO, fresh_tensors(DEMO, device), FusedOps(DEMO, device), device)
