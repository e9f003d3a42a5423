"""Llama 4's vision encoder: transformer over the patches of each tile, pixel-shuffle adapter, projector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from encoder_pool.geometry import VisionGeometry
from encoder_pool.ops import EncoderOps
from encoder_pool.protocol import GraphConfig, Inputs, ItemSpec
from encoder_pool.weights import Affine, VisionWeights

TILES = "tiles"


@dataclass(frozen=True, slots=True)
class _Linear:
    weight: Any
    bias: torch.Tensor


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Affine
    qkv: _Linear
    out: _Linear
    mlp_norm: Affine
    mlp_in: _Linear
    mlp_out: _Linear


class Llama4VisionEncoder:
    """uint8 tiles -> embeddings; implements GraphableEncoder (see protocol.py).

    The order of computation is here, how each step is computed is up to `ops`. A linear layer's bias that is
    followed by a residual addition is added there, not by the linear layer.
    """

    def __init__(self, geometry: VisionGeometry, weights: VisionWeights, ops: EncoderOps) -> None:
        self.geometry = geometry
        self._ops = ops

        def linear(layer: Affine) -> _Linear:
            return _Linear(ops.prepare(layer.weight), layer.bias)

        self._positions = weights.positions.to(torch.float32, copy=True)
        self._positions[-1] += weights.class_token.float()
        self._patch = ops.patch_weight(weights.patch)
        self._pre_norm, self._post_norm = weights.pre_norm, weights.post_norm
        self._layers = [
            _Layer(
                attention_norm=layer.attention_norm,
                qkv=linear(layer.qkv),
                out=linear(layer.out),
                mlp_norm=layer.mlp_norm,
                mlp_in=linear(layer.mlp_in),
                mlp_out=linear(layer.mlp_out),
            )
            for layer in weights.layers
        ]
        self._adapter_in, self._adapter_out = weights.adapter_in, weights.adapter_out
        self._projector = weights.projector

    @property
    def device(self) -> torch.device:
        return self._projector.device

    @property
    def dtype(self) -> torch.dtype:
        return self._projector.dtype

    @torch.inference_mode()
    def __call__(self, tiles: torch.Tensor) -> torch.Tensor:
        """uint8 [N, channels, tile, tile] on `device` -> [N * tokens_per_tile, text_width] in `dtype`."""
        ops = self._ops
        patches_w = F.linear(ops.patches(tiles), self._patch)
        residual, x = ops.embed(patches_w, self._positions, self._pre_norm, self._layers[0].attention_norm)
        next_norms = [layer.attention_norm for layer in self._layers[1:]]
        for i, layer in enumerate(self._layers):
            x = ops.attention(ops.linear(x, layer.qkv.weight, layer.qkv.bias))
            x = ops.add_norm(residual, ops.linear(x, layer.out.weight, None), layer.out.bias, layer.mlp_norm)
            x = ops.linear_gelu(x, layer.mlp_in.weight, layer.mlp_in.bias)
            delta = ops.linear(x, layer.mlp_out.weight, None)
            if i < len(next_norms):
                x = ops.add_norm(residual, delta, layer.mlp_out.bias, next_norms[i])
            else:
                x = ops.finish(residual, delta, layer.mlp_out.bias, self._post_norm)
        x = F.gelu(F.linear(self._shuffle(x), self._adapter_in))
        x = F.gelu(F.linear(x, self._adapter_out))
        return F.linear(x, self._projector)

    def _shuffle(self, x: torch.Tensor) -> torch.Tensor:
        """Drops the class tokens and joins each square of s * s neighbouring patches, s = shuffle:
        [N * positions, width] -> [N * tokens_per_tile, width * s * s], rows of the square outermost.
        """
        g = self.geometry
        s, side = g.shuffle, g.grid // g.shuffle
        x = x.view(-1, g.positions, g.width)[:, :-1]
        x = x.reshape(-1, side, s, side, s, g.width).transpose(2, 3)
        return x.reshape(-1, g.width * s * s)

    def graph_config(self) -> GraphConfig:
        return GraphConfig("image", (TILES,), (TILES,), self.geometry.text_width, self.geometry.tokens_per_tile)

    def budget_range(self) -> tuple[int, int]:
        # Beyond about 64 tiles the time is proportional to the number of tiles: two graphs cost what one would.
        return 1, 64

    def item_spec(self, item: Inputs) -> ItemSpec:
        tiles = item[TILES].shape[0]
        return ItemSpec(tiles, tiles * self.geometry.tokens_per_tile)

    def select(self, batch: Inputs, start: int, stop: int) -> Inputs:
        return {TILES: batch[TILES][start:stop]}

    def capture_inputs(self, budget: int) -> dict[str, torch.Tensor]:
        return {TILES: torch.zeros(budget, *self.geometry.tile_shape, dtype=torch.uint8, device=self.device)}

    def replay_inputs(self, inputs: Inputs) -> Inputs:
        return inputs

    def forward_graph(self, buffers: Inputs) -> torch.Tensor:
        return self(buffers[TILES])

    def forward_eager(self, inputs: Inputs) -> torch.Tensor:
        return self(inputs[TILES])

    def split_output(self, output: torch.Tensor, specs: Sequence[ItemSpec]) -> list[torch.Tensor]:
        return list(output.split([spec.output_tokens for spec in specs]))
