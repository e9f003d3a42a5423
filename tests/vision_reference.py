"""transformers' Llama 4 vision encoder as the reference, and the two sizes that tests compare at."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from transformers import Llama4ImageProcessor, Llama4VisionConfig, Llama4VisionModel

from encoder_pool.geometry import VisionGeometry

# uint8 tiles [n, 3, tile, tile] -> float32 embeddings [n * tokens_per_tile, text_width]
Reference = Callable[[np.ndarray], torch.Tensor]

DEMO = VisionGeometry(
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

# Llama 4 Scout's and Maverick's vision encoder.
SCOUT = VisionGeometry(
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


def random_tiles(count: int) -> np.ndarray:
    """Fresh uint8 noise [count, 3, 336, 336]."""
    return np.random.default_rng().integers(0, 256, (count, 3, 336, 336), dtype=np.uint8)


def relative_error(a: torch.Tensor, b: torch.Tensor) -> float:
    """||a - b|| / ||b|| over all rows; b is the reference, in float32."""
    return ((a.float() - b).norm() / b.norm()).item()


def reference_tower(geometry: VisionGeometry, tensors: Mapping[str, torch.Tensor]) -> Llama4VisionModel:
    """transformers' vision model with these weights (by name on disk), in their dtype and on their device."""
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
        attn_implementation="sdpa",
    )
    with torch.device("meta"):
        tower = Llama4VisionModel(config)
    # Not a parameter, so that no state dict brings it back from the meta device.
    tower.rotary_embedding = type(tower.rotary_embedding)(config)
    prefix = "vision_model."
    state = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    tower.load_state_dict(state, assign=True)
    return tower.eval()


def make_reference(geometry: VisionGeometry, tensors: Mapping[str, torch.Tensor]) -> Reference:
    """The vision model and projector behind Llama 4's own rescaling and normalization of pixels."""
    tower = reference_tower(geometry, tensors)
    projector = tensors["multi_modal_projector.linear_1.weight"]
    processor = Llama4ImageProcessor()

    @torch.inference_mode()
    def encode(tiles: np.ndarray) -> torch.Tensor:
        pixels = processor.rescale_and_normalize(torch.from_numpy(tiles), True, 1 / 255, True, [0.5] * 3, [0.5] * 3)
        features = tower(pixels.to(projector.device, projector.dtype)).last_hidden_state
        return torch.nn.functional.linear(features, projector).flatten(0, 1).float()

    return encode
