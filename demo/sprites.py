"""The drawings that pictures are put together from: masks of shapes and of handwritten digits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample, interpolate, pad

from demo.digits import Digits
from demo.scene import SHAPES

MASK_SIZE = 64


@dataclass(frozen=True)
class Sprites:
    """masks: float32 [n, 64, 64], 0 where the background shows, 1 where the colour covers it; names: of each mask."""

    masks: torch.Tensor
    names: np.ndarray

    def choices(self) -> dict[str, list[int]]:
        """Indices of the masks of every name."""
        return {str(name): np.flatnonzero(self.names == name).tolist() for name in np.unique(self.names)}


def plain_sprites(digits: Digits, seed: int) -> Sprites:
    """Every digit as it was written, and shapes at a few angles."""
    generator = torch.Generator().manual_seed(seed)
    return _join(_enlarge(torch.from_numpy(digits.images)), digits.labels, generator)


def varied_sprites(digits: Digits, seed: int, variants: int, device: torch.device) -> Sprites:
    """`variants` of every digit, for training: blended with another of the same label, bent, turned, slanted, thicker
    or thinner; and shapes at a few angles. The masks lie on `device`.
    """
    generator = torch.Generator().manual_seed(seed)
    images = torch.from_numpy(digits.images).repeat(variants, 1, 1)
    labels = np.tile(digits.labels, variants)

    order = np.argsort(labels, kind="stable")
    partners = np.empty(len(labels), dtype=np.int64)
    for label in range(10):
        of_label = order[labels[order] == label]
        partners[of_label] = of_label[torch.randperm(len(of_label), generator=generator).numpy()]
    share = torch.rand(len(images), 1, 1, generator=generator) * 0.35
    images = (1 - share) * images + share * images[torch.from_numpy(partners)]

    parts = [_distort(_enlarge(part).to(device), generator).cpu() for part in images.split(4096)]
    sprites = _join(torch.cat(parts), labels, generator)
    return Sprites(sprites.masks.to(device), sprites.names)


def _join(digit_masks: torch.Tensor, labels: np.ndarray, generator: torch.Generator) -> Sprites:
    angles = torch.rand(16, generator=generator) * 40 - 20
    masks, names = [digit_masks], [str(label) for label in labels]
    for shape in SHAPES:
        masks.append(torch.stack([_shape(shape, float(angle)) for angle in angles]))
        names += [shape] * len(angles)
    return Sprites(torch.cat(masks), np.array(names))


def _enlarge(images: torch.Tensor) -> torch.Tensor:
    """[n, 8, 8] -> [n, 64, 64], with a margin and with steeper edges than bicubic interpolation leaves."""
    padded = pad(images, (1, 1, 1, 1))[:, None]
    large = interpolate(padded, size=(MASK_SIZE, MASK_SIZE), mode="bicubic", align_corners=False)[:, 0]
    return ((large - 0.25) / 0.5).clamp(0, 1)


def _distort(masks: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    n, device = len(masks), masks.device

    def uniform(low: float, high: float, *shape: int) -> torch.Tensor:
        return (torch.rand(*shape, generator=generator) * (high - low) + low).to(device)

    angle, slant = uniform(-0.25, 0.25, n), uniform(-0.25, 0.25, n)
    scale_x, scale_y = uniform(0.85, 1.25, n), uniform(0.9, 1.15, n)
    cosine, sine = angle.cos(), angle.sin()
    rows = [
        torch.stack([scale_x * cosine, scale_x * (slant * cosine - sine), uniform(-0.06, 0.06, n)], dim=-1),
        torch.stack([scale_y * sine, scale_y * (slant * sine + cosine), uniform(-0.06, 0.06, n)], dim=-1),
    ]
    grid = affine_grid(torch.stack(rows, dim=1), [n, 1, MASK_SIZE, MASK_SIZE], align_corners=False)
    # A smooth random field bends the strokes.
    field = uniform(-0.07, 0.07, n, 2, 5, 5)
    bend = interpolate(field, size=(MASK_SIZE, MASK_SIZE), mode="bicubic", align_corners=False)
    bent = grid_sample(masks[:, None], grid + bend.permute(0, 2, 3, 1), align_corners=False)[:, 0]
    return bent.clamp(0, 1) ** uniform(0.6, 1.6, n, 1, 1)


def _shape(name: str, angle: float) -> torch.Tensor:
    """float32 [64, 64]: the shape turned by `angle` degrees, its edges smoothed by drawing it four times as large."""
    side = MASK_SIZE * 4
    axis = (torch.arange(side) + 0.5) / side * 2 - 1
    v, u = torch.meshgrid(axis, axis, indexing="ij")
    turn = torch.deg2rad(torch.tensor(angle))
    x, y = u * turn.cos() + v * turn.sin(), v * turn.cos() - u * turn.sin()
    radius = torch.hypot(x, y)
    if name == "circle":
        inside = radius < 0.8
    elif name == "ring":
        inside = (radius < 0.85) & (radius > 0.5)
    elif name == "square":
        inside = (x.abs() < 0.66) & (y.abs() < 0.66)
    elif name == "triangle":
        inside = (y < 0.65) & (y > -0.85 + 1.75 * x.abs())
    elif name == "cross":
        inside = ((x.abs() < 0.24) & (y.abs() < 0.82)) | ((y.abs() < 0.24) & (x.abs() < 0.82))
    elif name == "star":
        # The edge of a five-pointed star, as a radius that runs between 0.92 and 0.4.
        spike = (torch.atan2(x, -y) / (2 * torch.pi) * 5) % 1
        inside = radius < 0.4 + 0.52 * (2 * (spike - 0.5).abs()) ** 1.5
    else:
        raise ValueError(f"no shape is called {name}")
    return avg_pool2d(inside.float()[None], 4)[0]
