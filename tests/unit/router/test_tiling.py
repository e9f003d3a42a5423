import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers import AutoImageProcessor

from router.image_decode import open_picture
from router.tiling import Tiler, tiles_of
from tests.pictures import picture

CASES = Path(__file__).parents[2] / "cases"
SIZED = [
    case
    for case in json.loads((CASES / "manifest.json").read_text())
    if case["send"] == "image" and "aspect" in case["expect"]
]


@pytest.fixture(scope="module")
def tiler(model):
    return Tiler(model)


@pytest.mark.parametrize(("canvas", "tiles"), [((1, 1), 1), ((1, 2), 3), ((4, 4), 17)])
def test_several_tiles_come_with_the_global_one(canvas, tiles):
    assert tiles_of(canvas) == tiles


@pytest.mark.parametrize("case", SIZED, ids=lambda case: case["file"])
def test_canvas_of_known_sizes(tiler, case):
    tiles = tiler.tile(open_picture((CASES / case["file"]).read_bytes(), "p", 10**8).rgb())
    assert (list(tiles.aspect), len(tiles.pixels)) == (case["expect"]["aspect"], case["expect"]["tiles"])


@given(st.integers(1, 1500), st.integers(1, 1500))
@settings(max_examples=40, deadline=None)
def test_tiles_are_the_processors_own_pixels(tiler, model, width, height):
    image = picture(width * height, (width, height))
    reference = AutoImageProcessor.from_pretrained(model.source)(image, return_tensors="pt", do_normalize=False)
    tiles = tiler.tile(image)
    high, wide = tiles.aspect
    assert tiler.canvas((width, height), 16) == tiles.aspect
    assert tiles.pixels.dtype == np.uint8
    assert tiles.pixels.flags.c_contiguous
    assert tiles.pixels.shape == (1 if high * wide == 1 else high * wide + 1, 3, 336, 336)
    assert reference["aspect_ratios"].tolist() == [[high, wide]]
    expected = reference["pixel_values"].numpy() if len(tiles.pixels) else None
    assert np.abs(tiles.pixels / 255 - expected).max() < 1e-2


def test_rows_come_first_and_the_whole_picture_last(tiler):
    """A 2x3 canvas whose six tiles are six colours."""
    colours = [(40 * i, 255 - 40 * i, 17 * i) for i in range(6)]
    image = Image.new("RGB", (3 * 336, 2 * 336))
    for i, colour in enumerate(colours):
        image.paste(colour, (i % 3 * 336, i // 3 * 336, (i % 3 + 1) * 336, (i // 3 + 1) * 336))
    tiles = tiler.tile(image)
    assert tiles.aspect == (2, 3)
    assert [tuple(tile[:, 168, 168].tolist()) for tile in tiles.pixels[:6]] == colours
    whole = tiles.pixels[6]
    assert tuple(whole[:, 84, 56].tolist()) == colours[0]
    assert tuple(whole[:, 252, 280].tolist()) == colours[5]


def test_a_smaller_limit(tiler):
    image = picture(0, (1344, 1344))
    assert [len(tiler.tile(image, limit).pixels) for limit in (None, 4, 1)] == [17, 5, 1]


def test_several_threads_at_once(tiler):
    images = [picture(i, (200 + 300 * (i % 4), 700)) for i in range(16)]
    limits = [1, 16] * 8
    alone = [tiler.tile(image, limit) for image, limit in zip(images, limits, strict=True)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(tiler.tile, images, limits))
    assert all((a.pixels == b.pixels).all() for a, b in zip(alone, together, strict=True))
