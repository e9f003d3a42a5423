"""Settings become a GPU runner that agrees with plain PyTorch on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from encoder_pool.cuda_runner import CudaRunner
from encoder_pool.loading import load_encoder
from encoder_pool.model import Llama4VisionEncoder
from encoder_pool.ops import TorchOps
from encoder_pool.runner import EagerRunner
from encoder_pool.settings import EncoderSettings, ModelSettings
from encoder_pool.weights import load_weights
from tests.vision_reference import DEMO, random_tiles, relative_error

CPU = torch.device("cpu")


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A folder with no more than the configuration that dummy weights need."""
    vision = {
        "image_size": DEMO.tile,
        "num_channels": DEMO.channels,
        "patch_size": DEMO.patch,
        "hidden_size": DEMO.width,
        "num_hidden_layers": DEMO.layers,
        "num_attention_heads": DEMO.heads,
        "intermediate_size": DEMO.mlp_width,
        "pixel_shuffle_ratio": 1 / DEMO.shuffle,
        "projector_input_dim": DEMO.adapter_width,
        "projector_output_dim": DEMO.adapter_out,
        "rope_theta": DEMO.rope_theta,
    }
    config = {"vision_config": vision, "text_config": {"hidden_size": DEMO.text_width}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("dtype", "options", "runner", "tolerance"),
    [
        ("bfloat16", {}, CudaRunner, 2e-2),
        ("bfloat16", {"quantization": "fp8"}, CudaRunner, 1e-1),
        ("bfloat16", {"max_graph_tiles": 0}, EagerRunner, 2e-2),
        ("float32", {"max_graph_tiles": 17}, CudaRunner, 1e-4),
    ],
)
def test_each_way_to_run_on_a_gpu(
    source: str, device: torch.device, dtype: Any, options: dict[str, Any], runner: type, tolerance: float
) -> None:
    settings = ModelSettings(source=source, dtype=dtype, load_format="dummy", seed=3)
    loaded = load_encoder(settings, EncoderSettings(num_gpus=1, **options), device)
    assert isinstance(loaded.runner, runner)
    assert (loaded.capture is None) == (runner is EagerRunner)
    geometry, weights = load_weights(settings, torch.float32, CPU)
    reference = Llama4VisionEncoder(geometry, weights, TorchOps(geometry, torch.float32, CPU))
    tiles = random_tiles(20)
    rows = torch.from_numpy(loaded.runner.encode([tiles]).rows[0])
    rows = rows.view(torch.bfloat16) if dtype == "bfloat16" else rows
    assert relative_error(rows, reference(torch.from_numpy(tiles))) <= tolerance
