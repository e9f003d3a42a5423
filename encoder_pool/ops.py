"""The operations that the vision encoder is made of, and their plain PyTorch form.

Shape letters: N tiles, T positions a tile, G patches along a side of a tile, R = N * T rows, W width of the
transformer, H heads, D width of a head, K values of a patch.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812

from encoder_pool.geometry import VisionGeometry
from encoder_pool.rotary import rotary_tables
from encoder_pool.weights import Affine

# Llama 4's image processor rescales and normalizes in bfloat16, as Meta's implementation did, whatever the model's
# dtype is. Rounding less than that moves an embedding by 0.5 %, and an answer's logprobs with it.
PIXEL_DTYPE = torch.bfloat16


class EncoderOps(Protocol):
    """One way to compute the encoder.

    An activation (`Any` below) is what the same set of operations makes and takes: a tensor, or a quantized tensor
    with its scales.
    """

    def prepare(self, weight: torch.Tensor) -> Any:
        """A weight [out, in] in the form that `linear` takes."""
        ...

    def patches(self, tiles: torch.Tensor) -> torch.Tensor:
        """uint8 [N, C, S, S] -> [N * G * G, K'] of normalized values; K' >= K, zeros behind K.

        A pixel u becomes 2 * (u / 255 - 0.5), the quotient and the difference each rounded to bfloat16.
        """
        ...

    def patch_weight(self, weight: torch.Tensor) -> torch.Tensor:
        """[W, K] -> [W, K'], to multiply what `patches` makes."""
        ...

    def embed(
        self, patches_w: torch.Tensor, positions: torch.Tensor, pre_norm: Affine, first_norm: Affine
    ) -> tuple[torch.Tensor, Any]:
        """Joins embedded patches [N * G * G, W] with `positions`, float32 [T, W], whose last row is the
        class token already added to its position. Returns the residual stream [R, W] after `pre_norm`, and the
        activation `first_norm` of it.
        """
        ...

    def add_norm(self, residual: torch.Tensor, delta: torch.Tensor, bias: torch.Tensor, norm: Affine) -> Any:
        """Adds delta [R, W] and bias [W] to the residual stream in place; returns the activation `norm` of it."""
        ...

    def finish(self, residual: torch.Tensor, delta: torch.Tensor, bias: torch.Tensor, norm: Affine) -> torch.Tensor:
        """As `add_norm` for the last norm, but always a plain tensor."""
        ...

    def linear(self, x: Any, weight: Any, bias: torch.Tensor | None) -> torch.Tensor: ...

    def linear_gelu(self, x: Any, weight: Any, bias: torch.Tensor) -> Any:
        """GELU of the linear layer, as an activation."""
        ...

    def attention(self, qkv: torch.Tensor) -> Any:
        """[R, 3 * W] of queries, keys and values, not yet rotated -> activation [R, W]. May overwrite `qkv`."""
        ...


class TorchOps:
    """Plain PyTorch on any device, in float32 or bfloat16 with a float32 residual stream: the reference."""

    def __init__(self, geometry: VisionGeometry, dtype: torch.dtype, device: torch.device) -> None:
        self.geometry = geometry
        self.dtype = dtype
        self.cos, self.sin = rotary_tables(geometry, device)

    def prepare(self, weight: torch.Tensor) -> torch.Tensor:
        return weight

    def patches(self, tiles: torch.Tensor) -> torch.Tensor:
        g, p = self.geometry.grid, self.geometry.patch
        # Channel, then row, then column within a patch: the order of torch.nn.Unfold.
        x = tiles.view(-1, self.geometry.channels, g, p, g, p).permute(0, 2, 4, 1, 3, 5)
        rescaled = x.reshape(-1, self.geometry.patch_values).to(PIXEL_DTYPE) * (1 / 255)
        return ((rescaled - 0.5) * 2).to(self.dtype)

    def patch_weight(self, weight: torch.Tensor) -> torch.Tensor:
        return weight

    def embed(
        self, patches_w: torch.Tensor, positions: torch.Tensor, pre_norm: Affine, first_norm: Affine
    ) -> tuple[torch.Tensor, torch.Tensor]:
        width = self.geometry.width
        x = patches_w.view(-1, self.geometry.grid**2, width).float()
        x = F.pad(x, (0, 0, 0, 1)) + positions
        residual = _layer_norm(x.view(-1, width), pre_norm)
        return residual, _layer_norm(residual, first_norm).to(self.dtype)

    def add_norm(self, residual: torch.Tensor, delta: torch.Tensor, bias: torch.Tensor, norm: Affine) -> torch.Tensor:
        residual += delta
        residual += bias
        return _layer_norm(residual, norm).to(self.dtype)

    finish = add_norm

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return F.linear(x, weight, bias)

    def linear_gelu(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, weight, bias))

    def attention(self, qkv: torch.Tensor) -> torch.Tensor:
        geometry = self.geometry
        x = qkv.view(-1, geometry.positions, 3, geometry.heads, geometry.head_dim)
        pairs = x[:, :, :2].float().unflatten(-1, (-1, 2))
        a, b = pairs[..., 0], pairs[..., 1]
        cos, sin = self.cos[:, None, None], self.sin[:, None, None]
        rotated = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2).to(self.dtype)
        q, k = rotated.permute(2, 0, 3, 1, 4)
        v = x[:, :, 2].transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, geometry.width)


def _layer_norm(x: torch.Tensor, norm: Affine) -> torch.Tensor:
    """Llama 4's LayerNorm (epsilon 1e-5) in float32."""
    return F.layer_norm(x, norm.weight.shape, norm.weight.float(), norm.bias.float(), 1e-5)
