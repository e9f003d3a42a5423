"""The shape of a Llama 4 vision encoder, as a checkpoint's `config.json` gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from encoder_pool.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class VisionGeometry:
    """Sizes of the vision tower, adapter and projector.

    tile: side of a square tile in pixels; channels: colour channels of a tile.
    patch: side of a square patch in pixels.
    width, layers, heads, mlp_width: of the vision transformer.
    shuffle: pixels of one side that pixel shuffle folds into one embedding (2 for a ratio of 0.5).
    adapter_width, adapter_out: of the adapter's two linear layers.
    text_width: of an embedding.
    rope_theta: base of the rotary embedding's frequencies.
    """

    tile: int
    channels: int
    patch: int
    width: int
    layers: int
    heads: int
    mlp_width: int
    shuffle: int
    adapter_width: int
    adapter_out: int
    text_width: int
    rope_theta: float

    @property
    def grid(self) -> int:
        """Patches along one side of a tile."""
        return self.tile // self.patch

    @property
    def positions(self) -> int:
        """Positions a tile takes in the transformer: its patches, then the class token."""
        return self.grid**2 + 1

    @property
    def tokens_per_tile(self) -> int:
        """Embeddings that a tile becomes."""
        return (self.grid // self.shuffle) ** 2

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def patch_values(self) -> int:
        """Values of one flattened patch."""
        return self.channels * self.patch**2

    @property
    def tile_shape(self) -> tuple[int, int, int]:
        return (self.channels, self.tile, self.tile)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> VisionGeometry:
        """Reads a Llama 4 `config.json`. Raises CheckpointError where a key is missing or does not fit the others."""
        if "vision_config" not in config:
            raise CheckpointError("the checkpoint's config.json has no vision_config: not a Llama 4 vision model")
        vision, text = config["vision_config"], config.get("text_config", {})
        try:
            # transformers 5 writes rope_parameters, the published checkpoints have rope_theta.
            rope = vision.get("rope_parameters") or vision
            geometry = cls(
                tile=vision["image_size"],
                channels=vision["num_channels"],
                patch=vision["patch_size"],
                width=vision["hidden_size"],
                layers=vision["num_hidden_layers"],
                heads=vision["num_attention_heads"],
                mlp_width=vision["intermediate_size"],
                shuffle=round(1 / vision["pixel_shuffle_ratio"]),
                adapter_width=vision["projector_input_dim"],
                adapter_out=vision["projector_output_dim"],
                text_width=text["hidden_size"],
                rope_theta=float(rope["rope_theta"]),
            )
        except KeyError as error:
            raise CheckpointError(f"the checkpoint's config.json lacks {error.args[0]!r}") from None
        geometry._check()
        return geometry

    def _check(self) -> None:
        if self.tile % self.patch or self.grid % self.shuffle:
            raise CheckpointError(
                f"tiles of {self.tile} pixels do not divide into patches of {self.patch} and groups of {self.shuffle}"
            )
        if self.width % self.heads or self.head_dim % 4:
            raise CheckpointError(f"width {self.width} does not divide into {self.heads} heads of a multiple of 4")
        if self.mlp_width != self.width * self.shuffle**2:
            raise CheckpointError(
                f"intermediate_size {self.mlp_width} is not hidden_size {self.width} times {self.shuffle**2}, "
                "which the adapter's input needs"
            )
        if self.adapter_width != self.adapter_out:
            raise CheckpointError("projector_input_dim and projector_output_dim differ")

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name on disk (without an optional leading `model.`) -> shape, of every tensor that the encoder needs."""
        width, mlp = self.width, self.mlp_width
        shapes: dict[str, tuple[int, ...]] = {
            "vision_model.patch_embedding.linear.weight": (width, self.patch_values),
            "vision_model.class_embedding": (width,),
            "vision_model.positional_embedding_vlm": (self.positions, width),
            "vision_model.vision_adapter.mlp.fc1.weight": (self.adapter_width, mlp),
            "vision_model.vision_adapter.mlp.fc2.weight": (self.adapter_out, self.adapter_width),
            "multi_modal_projector.linear_1.weight": (self.text_width, self.adapter_out),
        }
        for norm in ("layernorm_pre", "layernorm_post"):
            shapes |= {f"vision_model.{norm}.{part}": (width,) for part in ("weight", "bias")}
        for i in range(self.layers):
            layer = f"vision_model.model.layers.{i}"
            for norm in ("input_layernorm", "post_attention_layernorm"):
                shapes |= {f"{layer}.{norm}.{part}": (width,) for part in ("weight", "bias")}
            linears = {f"self_attn.{x}_proj": (width, width) for x in "qkvo"}
            linears |= {"mlp.fc1": (mlp, width), "mlp.fc2": (width, mlp)}
            for name, shape in linears.items():
                shapes[f"{layer}.{name}.weight"] = shape
                shapes[f"{layer}.{name}.bias"] = shape[:1]
        return shapes

    def flops_per_tile(self) -> int:
        """Floating-point operations of one tile's matrix products and attention (a multiply-add counts two)."""
        t, w, m = self.positions, self.width, self.mlp_width
        layer = 2 * t * (4 * w * w + 2 * w * m) + 4 * t * t * w
        adapter = self.adapter_width * m + self.adapter_out * self.adapter_width + self.text_width * self.adapter_out
        return self.layers * layer + 2 * self.tokens_per_tile * adapter + 2 * self.grid**2 * self.patch_values * w
