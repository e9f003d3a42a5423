"""The least that the encoder's arithmetic takes: its large matrix products and its attention, nothing between."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

from encoder_pool.geometry import VisionGeometry
from encoder_pool.weights import VisionWeights


class Floor:
    """Matrix products of the real weights with random activations, and cuDNN attention, in one CUDA graph."""

    def __init__(self, geometry: VisionGeometry, weights: VisionWeights) -> None:
        self._geometry = geometry
        self._weights = weights

    def graph(self, tiles: int) -> torch.cuda.CUDAGraph:
        """The graph of `tiles` tiles."""
        g, device = self._geometry, self._weights.projector.device
        rows = tiles * g.positions
        x = torch.randn(rows, g.width, dtype=torch.bfloat16, device=device)
        wide = torch.randn(rows, g.mlp_width, dtype=torch.bfloat16, device=device)
        qkv = torch.randn(tiles, g.positions, 3, g.heads, g.head_dim, dtype=torch.bfloat16, device=device)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        shuffled = wide[: tiles * g.tokens_per_tile]
        patches = x[: tiles * g.grid**2, : g.patch_values // 8 * 8].contiguous()
        patch_weight = self._weights.patch[:, : g.patch_values // 8 * 8].contiguous()

        def arithmetic() -> None:
            F.linear(patches, patch_weight)
            for layer in self._weights.layers:
                F.linear(x, layer.qkv.weight)
                F.scaled_dot_product_attention(q, k, v)
                F.linear(x, layer.out.weight)
                F.linear(x, layer.mlp_in.weight)
                F.linear(wide, layer.mlp_out.weight)
            adapted = F.linear(F.linear(shuffled, self._weights.adapter_in), self._weights.adapter_out)
            F.linear(adapted, self._weights.projector)

        graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
            arithmetic()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                arithmetic()
        return graph
