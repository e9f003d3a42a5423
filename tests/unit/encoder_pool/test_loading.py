"""Settings become a runner that encodes as the model does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from encoder_pool.errors import UnsupportedDeviceError
from encoder_pool.loading import load_encoder
from encoder_pool.model import Llama4VisionEncoder
from encoder_pool.ops import TorchOps
from encoder_pool.settings import EncoderSettings, ModelSettings
from encoder_pool.weights import load_weights
from tests.vision_reference import random_tiles, relative_error

CPU = torch.device("cpu")


@pytest.mark.parametrize("load_format", ["auto", "dummy"])
def test_a_cpu_encoder_runs_without_graphs(checkpoint: Path, load_format: str) -> None:
    settings = ModelSettings(source=str(checkpoint), dtype="float32", load_format=load_format, seed=5)
    loaded = load_encoder(settings, EncoderSettings(), CPU)
    assert loaded.capture is None
    tiles = random_tiles(2)
    rows = torch.from_numpy(loaded.runner.encode([tiles]).rows[0])
    geometry, weights = load_weights(settings, torch.float32, CPU)
    expected = Llama4VisionEncoder(geometry, weights, TorchOps(geometry, torch.float32, CPU))(torch.from_numpy(tiles))
    assert relative_error(rows, expected) <= 1e-5


def test_fp8_needs_a_gpu(checkpoint: Path) -> None:
    with pytest.raises(UnsupportedDeviceError, match="fp8 needs a GPU"):
        load_encoder(ModelSettings(source=str(checkpoint)), EncoderSettings(quantization="fp8"), CPU)
