"""The two-dimensional rotary embedding of Llama 4's vision attention, as real cosines and sines."""

from __future__ import annotations

import torch

from encoder_pool.geometry import VisionGeometry


def rotary_tables(geometry: VisionGeometry, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of every position's angles, each float32 [positions, head_dim / 2].

    Pair p of a head, values 2p and 2p + 1, is turned by one angle: the patch's column + 1 times a frequency in the
    first half of the pairs, its row + 1 in the second half (axial RoPE, as in Pixtral). The f-th of the head_dim / 4
    frequencies is theta ** (-4 f / head_dim). The class token, last, is not turned.
    """
    half = geometry.head_dim // 2
    frequencies = 1.0 / geometry.rope_theta ** (torch.arange(0, half, 2, dtype=torch.float32) / half)
    patches = torch.arange(geometry.grid**2)
    columns, rows = patches % geometry.grid + 1, patches // geometry.grid + 1
    angles = torch.cat([columns[:, None] * frequencies, rows[:, None] * frequencies], dim=1)
    angles = torch.cat([angles, torch.zeros(1, half)])
    return angles.cos().to(device), angles.sin().to(device)
