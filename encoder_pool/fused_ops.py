"""The encoder's operations with fused kernels, in bfloat16 or with fp8 matrix products (see ops.py for the roles)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
import triton
from torch.nn.attention import SDPBackend, sdpa_kernel

from encoder_pool import triton_kernels
from encoder_pool.errors import UnsupportedDeviceError
from encoder_pool.geometry import VisionGeometry
from encoder_pool.rotary import rotary_tables
from encoder_pool.weights import Affine

F8 = torch.float8_e4m3fn
F8_MAX = 448.0

# By measurement at head width 88 on Hopper: cuDNN takes 0.65 of the time of FlashAttention-2, the others more.
_ATTENTION = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True, slots=True)
class Quantized:
    """values [R, W] in e4m3 times scales [R, 1] in float32."""

    values: torch.Tensor
    scales: torch.Tensor


class FusedOps:
    """bfloat16, with one kernel for each step between two matrix products.

    GELU is the tanh form, in the epilogue of the matrix product before it: its difference from the exact form is a
    tenth of bfloat16's rounding. A residual stream in float32 would make the encoder 1.6 times more exact for 1 to 6 %
    of its time (measured on an H200); in bfloat16 it is as exact as transformers' encoder.
    """

    quantizes = False

    def __init__(self, geometry: VisionGeometry, device: torch.device) -> None:
        self.geometry = geometry
        self._device = device
        self._cos, self._sin = rotary_tables(geometry, device)
        self._block = triton.next_power_of_2(geometry.width)
        # cuBLAS wants rows that are a multiple of 16 bytes long.
        self._patch_columns = -(-geometry.patch_values // 8) * 8

    def prepare(self, weight: torch.Tensor) -> torch.Tensor:
        return weight

    def patch_weight(self, weight: torch.Tensor) -> torch.Tensor:
        return F.pad(weight, (0, self._patch_columns - weight.shape[1]))

    def patches(self, tiles: torch.Tensor) -> torch.Tensor:
        g = self.geometry
        rows = tiles.shape[0] * g.grid**2
        out = self._empty(rows, self._patch_columns)
        block = triton.next_power_of_2(self._patch_columns)
        triton_kernels.patches[(rows,)](
            tiles, out, g.channels, g.tile, g.patch, self._patch_columns, block, num_warps=4
        )
        return out

    def embed(
        self, patches_w: torch.Tensor, positions: torch.Tensor, pre_norm: Affine, first_norm: Affine
    ) -> tuple[torch.Tensor, torch.Tensor | Quantized]:
        g = self.geometry
        rows = patches_w.shape[0] // g.grid**2 * g.positions
        residual = self._empty(rows, g.width)
        y, scales = self._activation(rows, g.width)
        triton_kernels.embed[(rows,)](
            patches_w, positions, residual, y, scales,
            pre_norm.weight, pre_norm.bias, first_norm.weight, first_norm.bias,
            g.positions, g.width, self._block, self.quantizes, num_warps=4,
        )  # fmt: skip
        return residual, self._wrap(y, scales)

    def add_norm(
        self, residual: torch.Tensor, delta: torch.Tensor, bias: torch.Tensor, norm: Affine
    ) -> torch.Tensor | Quantized:
        y, scales = self._activation(*residual.shape)
        triton_kernels.add_norm[(residual.shape[0],)](
            residual, delta, bias, y, scales, norm.weight, norm.bias,
            self.geometry.width, self._block, True, self.quantizes, num_warps=4,
        )  # fmt: skip
        return self._wrap(y, scales)

    def finish(self, residual: torch.Tensor, delta: torch.Tensor, bias: torch.Tensor, norm: Affine) -> torch.Tensor:
        y = self._empty(*residual.shape)
        triton_kernels.add_norm[(residual.shape[0],)](
            residual, delta, bias, y, y, norm.weight, norm.bias,
            self.geometry.width, self._block, False, False, num_warps=4,
        )  # fmt: skip
        return y

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return F.linear(x, weight, bias)

    def linear_gelu(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch._addmm_activation(bias, x, weight.t(), use_gelu=True)

    def attention(self, qkv: torch.Tensor) -> torch.Tensor:
        g = self.geometry
        rows = qkv.shape[0]
        block = triton.next_power_of_2(g.width // 2)
        triton_kernels.rotate[(rows, 2)](
            qkv, self._cos, self._sin, g.positions, g.width, g.head_dim // 2, block, num_warps=4
        )
        q, k, v = qkv.view(-1, g.positions, 3, g.heads, g.head_dim).permute(2, 0, 3, 1, 4)
        with sdpa_kernel(_ATTENTION, set_priority=True):
            return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, g.width)

    def _empty(self, rows: int, columns: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.empty(rows, columns, dtype=dtype, device=self._device)

    def _activation(self, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Where a kernel writes an activation, and its scales (not written in bfloat16)."""
        if not self.quantizes:
            y = self._empty(rows, columns)
            return y, y
        return self._empty(rows, columns, F8), self._empty(rows, 1, torch.float32)

    def _wrap(self, y: torch.Tensor, scales: torch.Tensor) -> torch.Tensor | Quantized:
        return Quantized(y, scales) if self.quantizes else y


class FusedFp8Ops(FusedOps):
    """e4m3 matrix products in the transformer's layers, scaled by row of the activation and by output of the weight,
    which needs no calibration. Attention, the residual stream, patch embedding, adapter and projector are not
    quantized.
    """

    quantizes = True

    def __init__(self, geometry: VisionGeometry, device: torch.device) -> None:
        super().__init__(geometry, device)
        if torch.cuda.get_device_capability(device) < (9, 0):
            name = torch.cuda.get_device_name(device)
            raise UnsupportedDeviceError(f"quantization: fp8 needs a Hopper GPU or a newer one; this is {name}")

    def prepare(self, weight: torch.Tensor) -> Quantized:
        scales = weight.float().abs().amax(1, keepdim=True).clamp_min(1e-12) / F8_MAX
        return Quantized((weight.float() / scales).to(F8), scales)

    def linear(self, x: Quantized, weight: Quantized, bias: torch.Tensor | None) -> torch.Tensor:
        return torch._scaled_mm(
            x.values,
            weight.values.t(),
            x.scales,
            weight.scales.t(),
            bias=bias,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )

    def linear_gelu(self, x: Quantized, weight: Quantized, bias: torch.Tensor) -> Quantized:
        return self._quantize(self.linear(x, weight, bias), gelu=True)

    def attention(self, qkv: torch.Tensor) -> Quantized:
        return self._quantize(super().attention(qkv), gelu=False)

    def _quantize(self, x: torch.Tensor, gelu: bool) -> Quantized:
        rows, width = x.shape
        y, scales = self._activation(rows, width)
        block = triton.next_power_of_2(width)
        triton_kernels.quantize[(rows,)](x, y, scales, width, block, gelu, num_warps=4)
        return Quantized(y, scales)
