"""Reading the shape of the encoder from configurations as they are published."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from encoder_pool.errors import CheckpointError
from encoder_pool.geometry import VisionGeometry
from tests.vision_reference import SCOUT

# The keys of the published Llama 4 Scout that matter here.
PUBLISHED: dict[str, Any] = {
    "text_config": {"hidden_size": 5120},
    "vision_config": {
        "hidden_size": 1408,
        "image_size": 336,
        "intermediate_size": 5632,
        "num_attention_heads": 16,
        "num_channels": 3,
        "num_hidden_layers": 34,
        "patch_size": 14,
        "pixel_shuffle_ratio": 0.5,
        "projector_input_dim": 4096,
        "projector_output_dim": 4096,
        "rope_theta": 10000,
        "vision_output_dim": 4096,
    },
}


def changed(**vision: Any) -> dict[str, Any]:
    config = copy.deepcopy(PUBLISHED)
    config["vision_config"] |= vision
    return config


def test_the_published_configuration() -> None:
    geometry = VisionGeometry.from_config(PUBLISHED)
    assert geometry == SCOUT
    assert (geometry.positions, geometry.tokens_per_tile, geometry.head_dim) == (577, 144, 88)
    # 1.01 TFLOP a tile, and 0.87 billion parameters.
    assert geometry.flops_per_tile() == pytest.approx(1.01e12, rel=0.02)


def test_rotary_parameters_as_transformers_5_writes_them() -> None:
    config = changed(rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    del config["vision_config"]["rope_theta"]
    assert VisionGeometry.from_config(config).rope_theta == 500.0


@pytest.mark.parametrize("key", ["image_size", "num_hidden_layers", "rope_theta"])
def test_a_missing_key_is_named(key: str) -> None:
    config = changed()
    del config["vision_config"][key]
    with pytest.raises(CheckpointError, match=f"lacks '{key}'"):
        VisionGeometry.from_config(config)


@pytest.mark.parametrize(
    ("vision", "reason"),
    [
        ({"image_size": 340}, "do not divide"),
        ({"num_attention_heads": 15}, "does not divide into 15 heads"),
        ({"intermediate_size": 4096}, "intermediate_size 4096"),
        ({"projector_output_dim": 2048}, "projector_input_dim and projector_output_dim differ"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(vision: dict[str, Any], reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        VisionGeometry.from_config(changed(**vision))
