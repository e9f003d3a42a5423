"""Fixtures of the encoder pool's tests: a tiny checkpoint, and transformers' encoder as the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import Llama4VisionConfig, Llama4VisionModel

from demo.make_checkpoint import make_checkpoint
from encoder_pool.geometry import VisionGeometry

Reference = Callable[[np.ndarray], torch.Tensor]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama 4 in Hugging Face format, float32 on disk; do not write to it."""
    path = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint(path, seed=0, dtype="float32")
    return path


@pytest.fixture(scope="session")
def tensors(checkpoint: Path) -> dict[str, torch.Tensor]:
    """All tensors of the tiny checkpoint by their names on disk; do not write to them."""
    return {name: tensor for shard in checkpoint.glob("*.safetensors") for name, tensor in load_file(shard).items()}


@pytest.fixture(scope="session")
def demo_geometry() -> VisionGeometry:
    return VisionGeometry(
        tile=336,
        channels=3,
        patch=14,
        width=64,
        layers=2,
        heads=2,
        mlp_width=256,
        shuffle=2,
        adapter_width=64,
        adapter_out=64,
        text_width=128,
        rope_theta=10000.0,
    )


@pytest.fixture(scope="session")
def scout_geometry() -> VisionGeometry:
    """Llama 4 Scout's and Maverick's vision encoder."""
    return VisionGeometry(
        tile=336,
        channels=3,
        patch=14,
        width=1408,
        layers=34,
        heads=16,
        mlp_width=5632,
        shuffle=2,
        adapter_width=4096,
        adapter_out=4096,
        text_width=5120,
        rope_theta=10000.0,
    )


@pytest.fixture(scope="session")
def make_reference() -> Callable[[VisionGeometry, Mapping[str, torch.Tensor]], Reference]:
    """(geometry, tensors by name on disk) -> transformers' vision model and projector in float32 on the CPU."""

    def make(geometry: VisionGeometry, tensors: Mapping[str, torch.Tensor]) -> Reference:
        config = Llama4VisionConfig(
            hidden_size=geometry.width,
            num_hidden_layers=geometry.layers,
            num_attention_heads=geometry.heads,
            intermediate_size=geometry.mlp_width,
            vision_output_dim=geometry.adapter_out,
            image_size=geometry.tile,
            patch_size=geometry.patch,
            pixel_shuffle_ratio=1 / geometry.shuffle,
            projector_input_dim=geometry.adapter_width,
            projector_output_dim=geometry.adapter_out,
            rope_parameters={"rope_type": "default", "rope_theta": geometry.rope_theta},
        )
        with torch.device("meta"):
            tower = Llama4VisionModel(config)
        # Not a parameter, so that no state dict brings it back from the meta device.
        tower.rotary_embedding = type(tower.rotary_embedding)(config)
        prefix = "vision_model."
        state = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        tower.load_state_dict(state, assign=True)
        tower.eval()
        projector = tensors["multi_modal_projector.linear_1.weight"]

        @torch.inference_mode()
        def encode(tiles: np.ndarray) -> torch.Tensor:
            pixels = torch.from_numpy(tiles).float() / 255
            features = tower((pixels - 0.5) / 0.5).last_hidden_state
            return torch.nn.functional.linear(features, projector).flatten(0, 1)

        return encode

    return make
