"""The fused kernels against plain PyTorch on the CPU; test_fused_ops.py runs this file under Triton's interpreter."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from encoder_pool.errors import UnsupportedDeviceError
from encoder_pool.fused_ops import FusedFp8Ops, FusedOps
from encoder_pool.model import Llama4VisionEncoder
from encoder_pool.ops import TorchOps
from encoder_pool.weights import VisionWeights, assemble, dummy_tensors
from tests.vision_reference import DEMO, relative_error

CPU = torch.device("cpu")
# The interpreter runs a program a row: small tiles. Head width 44 and patches of 588 values are no powers of two.
SMALL = dataclasses.replace(DEMO, tile=28, width=88, mlp_width=352)


@pytest.fixture(autouse=True)
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))


def weights(dtype: torch.dtype) -> VisionWeights:
    return assemble(SMALL, dict(dummy_tensors(SMALL, seed=1)).__getitem__, dtype, CPU)


def tiles() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng().integers(0, 256, (3, 3, 28, 28), dtype=np.uint8))


# fp8: the interpreter truncates where the hardware rounds; the real bound is in tests/gpu.
@pytest.mark.parametrize(("ops", "tolerance"), [(FusedOps, 2e-2), (FusedFp8Ops, 2e-1)])
def test_the_fused_encoder_agrees_with_float32(ops: type[FusedOps], tolerance: float) -> None:
    x = tiles()
    expected = Llama4VisionEncoder(SMALL, weights(torch.float32), TorchOps(SMALL, torch.float32, CPU))(x)
    rows = Llama4VisionEncoder(SMALL, weights(torch.bfloat16), ops(SMALL, CPU))(x)
    assert rows.dtype == torch.bfloat16
    assert relative_error(rows, expected) <= tolerance


def test_patches_are_those_of_plain_pytorch() -> None:
    x = tiles()
    ours = FusedOps(SMALL, CPU).patches(x)
    assert ours.shape == (3 * 4, 592)
    # The interpreter truncates where the hardware rounds; a value differs by two such steps at most.
    theirs = TorchOps(SMALL, torch.bfloat16, CPU).patches(x)
    assert (ours[:, :588].float() - theirs.float()).abs().max() <= 2**-6
    assert not ours[:, 588:].any()


def test_quantized_rows_use_the_whole_range() -> None:
    ops = FusedFp8Ops(SMALL, CPU)
    x = torch.randn(5, 88, dtype=torch.bfloat16) * torch.tensor([[1e-3], [1.0], [30.0], [1e3], [0.0]])
    quantized = ops._quantize(x.bfloat16(), gelu=False)
    assert quantized.values.float().abs().amax(1)[:4].tolist() == [448.0] * 4
    # The interpreter truncates where the hardware rounds: three bits of mantissa, so up to an eighth.
    assert relative_error(quantized.values.float() * quantized.scales, x) < 0.125
    assert not quantized.values[4].float().any()


def test_fp8_is_refused_on_older_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "an older GPU")
    with pytest.raises(UnsupportedDeviceError, match="Hopper GPU or a newer one; this is an older GPU"):
        FusedFp8Ops(SMALL, CPU)
