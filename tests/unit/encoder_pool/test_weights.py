"""What is loaded equals what is on disk."""

from __future__ import annotations

from pathlib import Path

import torch

from encoder_pool.checkpoint import canonical_name
from encoder_pool.settings import ModelSettings
from encoder_pool.weights import dummy_tensors, load_weights

CPU = torch.device("cpu")


def test_tensors_are_read_fused_and_converted(checkpoint: Path, tensors: dict[str, torch.Tensor]) -> None:
    disk = {canonical_name(name): tensor for name, tensor in tensors.items()}
    geometry, weights = load_weights(ModelSettings(source=str(checkpoint)), torch.bfloat16, CPU)
    assert (geometry.tokens_per_tile, geometry.text_width) == (144, 128)
    layer = "vision_model.model.layers.1"
    qkv = torch.cat([disk[f"{layer}.self_attn.{x}_proj.weight"] for x in "qkv"])
    assert torch.equal(weights.layers[1].qkv.weight, qkv.bfloat16())
    assert torch.equal(weights.layers[1].mlp_out.bias, disk[f"{layer}.mlp.fc2.bias"].bfloat16())
    assert torch.equal(weights.projector, disk["multi_modal_projector.linear_1.weight"].bfloat16())


def test_dummy_weights_need_only_the_configuration(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    settings = ModelSettings(source=str(tmp_path), load_format="dummy", seed=3)
    geometry, weights = load_weights(settings, torch.float32, CPU)
    expected = dict(dummy_tensors(geometry, 3))
    assert torch.equal(weights.class_token, expected["vision_model.class_embedding"])
    other = dict(dummy_tensors(geometry, 4))
    assert not torch.equal(weights.class_token, other["vision_model.class_embedding"])
    assert expected.keys() == geometry.tensor_shapes().keys()
