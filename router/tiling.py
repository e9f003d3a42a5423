"""Pictures to tiles, with Hugging Face's own processor. The only place that decides a canvas.

The canvas (grid of tiles) is always chosen on the CPU: near-ties come out differently on a GPU. Tiles stay uint8; the
encoder normalizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from transformers import AutoImageProcessor
from transformers.image_utils import ChannelDimension
from transformers.models.llama4.image_processing_llama4 import find_supported_resolutions, get_best_fit

from encoder_pool.settings import ModelSettings


def tiles_of(canvas: tuple[int, int]) -> int:
    """Tiles that the encoder gets of a picture on a canvas of (high, wide) tiles: several come with the global one."""
    high, wide = canvas
    return 1 if high * wide == 1 else high * wide + 1


@dataclass(frozen=True, slots=True)
class Tiles:
    """One picture, cut. pixels: uint8 [tiles, 3, 336, 336], rows first, the global tile last. aspect: (high, wide)."""

    pixels: NDArray[np.uint8]
    aspect: tuple[int, int]


class Tiler:
    """Cuts pictures as the model's processor configuration says; safe to call from several threads."""

    def __init__(self, model: ModelSettings) -> None:
        self._processor = AutoImageProcessor.from_pretrained(model.source, revision=model.revision)
        self.max_tiles = int(self._processor.max_patches)

    def canvas(self, size: tuple[int, int], max_tiles: int) -> tuple[int, int]:
        """(high, wide) of the grid into which a picture of that (width, height) is cut, before it is."""
        width, height = size
        side = self._processor.size
        resolutions = torch.tensor(find_supported_resolutions(max_tiles, side))
        high, wide = get_best_fit((height, width), resolutions, self._processor.resize_to_max_canvas)
        return int(high) // side.height, int(wide) // side.width

    def tile(self, image: Image.Image, max_tiles: int | None = None) -> Tiles:
        """`image` (RGB) as tiles: one, or `high * wide` and the whole picture once more.

        max_tiles: fewer than the processor's own limit, the global tile not counted.
        """
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        batch = self._processor(
            pixels,
            # Named, because a picture that is 1 or 3 pixels high looks like one whose channels come last.
            input_data_format=ChannelDimension.FIRST,
            do_convert_rgb=False,
            do_rescale=False,
            do_normalize=False,
            max_patches=max_tiles or self.max_tiles,
            return_tensors="pt",
        )
        tiles = batch["pixel_values"].numpy()
        high, wide = batch["aspect_ratios"][0].tolist()
        # One tile comes alone, and never as a view of something larger.
        return Tiles(np.ascontiguousarray(tiles, dtype=np.uint8), (int(high), int(wide)))
