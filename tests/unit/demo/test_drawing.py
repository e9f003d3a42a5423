"""Drawing and cutting pictures: what training sees is what Llama 4's image processor makes of the same picture."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from demo.architecture import build_processor
from demo.batches import draw_tiles, picture_batch
from demo.digits import digits
from demo.drawing import cut_tiles, to_image
from demo.examples import LARGE_GRIDS, SMALL_GRIDS
from demo.scene import COLOURS, draw_picture
from demo.sprites import plain_sprites
from demo.tokenizer import build_tokenizer


@pytest.fixture(scope="module")
def sprites():
    return plain_sprites(digits("held_out"), seed=0)


@pytest.fixture(scope="module")
def image_processor():
    return build_processor(build_tokenizer()).image_processor


@pytest.mark.parametrize("grid", [(1, 1), *SMALL_GRIDS, *LARGE_GRIDS], ids=str)
def test_tiles_are_those_of_the_image_processor(sprites, image_processor, grid):
    rng = Random()
    image = to_image(draw_picture(rng, grid, grid, ["circle"]), sprites, rng)
    expected = image_processor(image, do_rescale=False, do_normalize=False, return_tensors="pt")
    assert tuple(expected["aspect_ratios"][0].tolist()) == grid
    tiles = cut_tiles(torch.from_numpy(np.array(image)).permute(2, 0, 1)[None])[0]
    assert torch.equal(tiles, expected["pixel_values"].to(torch.uint8))


def test_a_thing_is_drawn_in_its_colour_inside_its_cell(sprites):
    rng = Random()
    picture = draw_picture(rng, (2, 2), (2, 2), ["square"], ["blue"])
    image = np.array(to_image(picture, sprites, rng)).astype(int)
    row, column = picture.things[0].cell
    drawn = np.abs(image - np.array(picture.background)).max(-1) > 20
    inside = np.zeros_like(drawn)
    inside[row * 336 : (row + 1) * 336, column * 336 : (column + 1) * 336] = True
    assert drawn.any()
    assert not (drawn & ~inside).any()
    sprite = picture.things[0].sprites[0]
    centre = image[int(sprite.top + sprite.size / 2), int(sprite.left + sprite.size / 2)]
    assert np.abs(centre - COLOURS["blue"]).max() <= 13


def test_a_batch_holds_the_tiles_of_its_pictures_in_order(sprites):
    rng = Random()
    pictures = [draw_picture(rng, grid, grid, ["star"]) for grid in ((1, 1), (2, 2), (1, 1), (1, 2))]
    batch = picture_batch(pictures, sprites.choices(), Random(7))
    together = draw_tiles(batch, sprites.masks)
    assert len(together) == 1 + 5 + 1 + 3
    assert batch.labels.shape == (10, 144, 4)
    start = 0
    for picture in pictures:
        # The angle of a star is chosen at random: compare what does not hang on it.
        tiles = together[start : start + picture.tiles]
        alone = draw_tiles(picture_batch([picture], sprites.choices(), Random(1)), sprites.masks)
        assert (tiles.float().mean((1, 2, 3)) - alone.float().mean((1, 2, 3))).abs().max() < 1
        start += picture.tiles
