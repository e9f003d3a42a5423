"""The vision encoder's weights in the layout that the model computes with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from encoder_pool.checkpoint import open_checkpoint, read_geometry
from encoder_pool.geometry import VisionGeometry
from encoder_pool.settings import ModelSettings

GetTensor = Callable[[str], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Affine:
    """A linear layer's weight [out, in] with its bias [out], or a LayerNorm's gain [width] with its bias [width]."""

    weight: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One transformer layer. `qkv` holds the three projections, one below the other: [3 * width, width]."""

    attention_norm: Affine
    qkv: Affine
    out: Affine
    mlp_norm: Affine
    mlp_in: Affine
    mlp_out: Affine


@dataclass(frozen=True, slots=True)
class VisionWeights:
    """All of the encoder, in one dtype on one device.

    patch: [width, channels * patch**2]; class_token: [width]; positions: [positions, width], the class token last;
    adapter_in, adapter_out, projector: [out, in], without biases.
    """

    patch: torch.Tensor
    class_token: torch.Tensor
    positions: torch.Tensor
    pre_norm: Affine
    layers: tuple[LayerWeights, ...]
    post_norm: Affine
    adapter_in: torch.Tensor
    adapter_out: torch.Tensor
    projector: torch.Tensor


def load_weights(
    settings: ModelSettings, dtype: torch.dtype, device: torch.device
) -> tuple[VisionGeometry, VisionWeights]:
    """The encoder's shape and weights, from the checkpoint or, for `load_format: dummy`, from the seed.

    Reads no weights but those of the vision encoder. Raises CheckpointError.
    """
    if settings.load_format == "dummy":
        geometry = read_geometry(settings)
        tensors = dict(dummy_tensors(geometry, settings.seed))
        return geometry, assemble(geometry, tensors.__getitem__, dtype, device)
    checkpoint = open_checkpoint(settings)
    with ExitStack() as stack:
        files: dict[Path, safe_open] = {}
        for entry in checkpoint.tensors.values():
            if entry.file not in files:
                files[entry.file] = stack.enter_context(safe_open(entry.file, framework="pt"))

        def get(name: str) -> torch.Tensor:
            entry = checkpoint.tensors[name]
            return files[entry.file].get_tensor(entry.stored_name)

        return checkpoint.geometry, assemble(checkpoint.geometry, get, dtype, device)


def assemble(geometry: VisionGeometry, get: GetTensor, dtype: torch.dtype, device: torch.device) -> VisionWeights:
    """Converts and fuses the tensors that `get` returns by their names on disk (without a leading `model.`)."""

    def tensor(name: str) -> torch.Tensor:
        return get(name).to(device=device, dtype=dtype)

    def affine(name: str) -> Affine:
        return Affine(tensor(f"{name}.weight"), tensor(f"{name}.bias"))

    def layer(i: int) -> LayerWeights:
        name = f"vision_model.model.layers.{i}"
        q, k, v = (affine(f"{name}.self_attn.{x}_proj") for x in "qkv")
        return LayerWeights(
            attention_norm=affine(f"{name}.input_layernorm"),
            qkv=Affine(torch.cat([q.weight, k.weight, v.weight]), torch.cat([q.bias, k.bias, v.bias])),
            out=affine(f"{name}.self_attn.o_proj"),
            mlp_norm=affine(f"{name}.post_attention_layernorm"),
            mlp_in=affine(f"{name}.mlp.fc1"),
            mlp_out=affine(f"{name}.mlp.fc2"),
        )

    return VisionWeights(
        patch=tensor("vision_model.patch_embedding.linear.weight"),
        class_token=tensor("vision_model.class_embedding"),
        positions=tensor("vision_model.positional_embedding_vlm"),
        pre_norm=affine("vision_model.layernorm_pre"),
        layers=tuple(layer(i) for i in range(geometry.layers)),
        post_norm=affine("vision_model.layernorm_post"),
        adapter_in=tensor("vision_model.vision_adapter.mlp.fc1.weight"),
        adapter_out=tensor("vision_model.vision_adapter.mlp.fc2.weight"),
        projector=tensor("multi_modal_projector.linear_1.weight"),
    )


def dummy_tensors(geometry: VisionGeometry, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Random float32 tensors on the CPU, by name on disk; the same on every machine for one seed.

    Matrices have the variance of a new torch.nn.Linear, 1 / (3 * inputs); LayerNorm gains lie around one.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, shape in geometry.tensor_shapes().items():
        values = torch.randn(shape, generator=generator)
        if "norm" in name:
            values = values * 0.1 + float(name.endswith("weight"))
        elif name.endswith("bias"):
            values *= 0.1
        else:
            values *= (3 * shape[-1]) ** -0.5
        yield name, values
