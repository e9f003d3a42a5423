"""Draws pictures, many at a time and on any device, and cuts them into tiles as Llama 4's image processor does."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import grid_sample
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2.functional import resize

from demo.architecture import TILE_SIZE
from demo.scene import Picture
from demo.sprites import Sprites

# Sprites are drawn into squares of this side, larger than any of them.
_WINDOW = 224


def sprite_table(pictures: Sequence[Picture], choices: dict[str, list[int]], rng: Random) -> np.ndarray:
    """float32 [sprites, 8]: picture, mask, left, top, size, red, green, blue; masks are chosen at random by name."""
    rows = [
        (index, rng.choice(choices[sprite.name]), sprite.left, sprite.top, sprite.size, *thing.rgb)
        for index, picture in enumerate(pictures)
        for thing in picture.things
        for sprite in thing.sprites
    ]
    return np.array(rows, dtype=np.float32).reshape(-1, 8)


def draw(grid: tuple[int, int], backgrounds: torch.Tensor, table: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """uint8 [n, 3, rows * 336, columns * 336]: n pictures of one grid.

    backgrounds: float32 [n, 3], 0 to 255; table: as `sprite_table` gives it; all on one device.
    """
    height, width = grid[0] * TILE_SIZE, grid[1] * TILE_SIZE
    margin = _WINDOW // 2
    n, device = len(backgrounds), backgrounds.device
    # Sprites do not overlap, so what each adds to the background can be summed in any order.
    canvas = torch.zeros(n * (height + _WINDOW) * (width + _WINDOW), 3, device=device)
    for part in table.split(512):
        picture, mask = part[:, 0].long(), part[:, 1].long()
        left, top, size = part[:, 2], part[:, 3], part[:, 4]
        x0, y0 = (left + size / 2).floor().long() - margin, (top + size / 2).floor().long() - margin
        steps = torch.arange(_WINDOW, device=device)
        columns, rows = x0[:, None] + steps, y0[:, None] + steps
        u = (columns + 0.5 - left[:, None]) / size[:, None] * 2 - 1
        v = (rows + 0.5 - top[:, None]) / size[:, None] * 2 - 1
        where = torch.stack([u[:, None, :].expand(-1, _WINDOW, -1), v[:, :, None].expand(-1, -1, _WINDOW)], dim=-1)
        cover = grid_sample(masks[mask][:, None].float(), where, align_corners=False)[:, 0]
        change = (part[:, 5:8] - backgrounds[picture])[:, None, None, :] * cover[..., None]
        pixel = (rows + margin)[:, :, None] * (width + _WINDOW) + (columns + margin)[:, None, :]
        pixel = pixel + (picture * (height + _WINDOW) * (width + _WINDOW))[:, None, None]
        canvas.index_add_(0, pixel.flatten(), change.flatten(0, 2))
    canvas = canvas.view(n, height + _WINDOW, width + _WINDOW, 3)[:, margin:-margin, margin:-margin]
    drawn = (canvas + backgrounds[:, None, None, :]).round().clamp(0, 255).to(torch.uint8)
    return drawn.permute(0, 3, 1, 2).contiguous()


def cut_tiles(pictures: torch.Tensor) -> torch.Tensor:
    """uint8 [n, 3, rows * 336, columns * 336] -> uint8 [n, tiles, 3, 336, 336], the global tile last."""
    n, channels, height, width = pictures.shape
    rows, columns = height // TILE_SIZE, width // TILE_SIZE
    tiles = pictures.view(n, channels, rows, TILE_SIZE, columns, TILE_SIZE)
    tiles = tiles.permute(0, 2, 4, 1, 3, 5).reshape(n, rows * columns, channels, TILE_SIZE, TILE_SIZE)
    if rows * columns == 1:
        return tiles
    whole = resize(pictures, [TILE_SIZE, TILE_SIZE], InterpolationMode.BILINEAR, antialias=True)
    return torch.cat([tiles, whole[:, None]], dim=1)


def to_image(picture: Picture, sprites: Sprites, rng: Random) -> Image.Image:
    """One picture as a PIL image, its masks chosen with `rng`."""
    table = torch.from_numpy(sprite_table([picture], sprites.choices(), rng))
    background = torch.tensor([picture.background], dtype=torch.float32)
    drawn = draw((picture.rows, picture.columns), background, table, sprites.masks)
    return Image.fromarray(drawn[0].permute(1, 2, 0).numpy())
