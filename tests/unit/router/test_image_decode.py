import contextlib
import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from router.errors import ApiError
from router.image_decode import open_picture
from tests.pictures import encoded, picture


def decode(data: bytes, path: str, max_pixels: int) -> Image.Image:
    return open_picture(data, path, max_pixels).rgb()


CASES = Path(__file__).parents[2] / "cases"
IMAGES = [case for case in json.loads((CASES / "manifest.json").read_text()) if case["send"] == "image"]


@pytest.mark.parametrize("case", [c for c in IMAGES if "corners" in c["expect"]], ids=lambda c: c["file"])
def test_colour_modes_and_orientation(case):
    image = decode((CASES / case["file"]).read_bytes(), "p", 10**8)
    assert image.mode == "RGB"
    pixels = np.asarray(image).astype(int)
    corners = [pixels[y, x] for y in (1, -2) for x in (1, -2)]
    assert np.abs(np.array(corners) - np.array(case["expect"]["corners"])).max() <= 6


@pytest.mark.parametrize("case", [c for c in IMAGES if c["file"].startswith("broken/")], ids=lambda c: c["file"])
def test_broken_and_foreign_files(case):
    data = (CASES / case["file"]).read_bytes()
    if case["expect"]["status"] == 200:
        assert decode(data, "p", 10**8).mode == "RGB"
        return
    with pytest.raises(ApiError, match="PNG, JPEG, WebP, GIF, BMP or TIFF") as caught:
        decode(data, "messages[0].content[0]", 10**8)
    assert (caught.value.status, caught.value.param) == (400, "messages[0].content[0]")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_every_accepted_format(kind):
    red = decode(encoded(Image.new("RGB", (20, 10), (200, 0, 0)), kind), "p", 1000)
    assert red.size == (20, 10)
    assert np.abs(np.asarray(red).astype(int) - [200, 0, 0]).max() <= 6


def test_an_accepted_format_in_a_foreign_coat():
    with pytest.raises(ApiError):
        decode(encoded(Image.new("RGB", (20, 10)), "PPM"), "p", 1000)


def test_transparency_lies_on_white():
    image = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    image.putpixel((1, 0), (255, 0, 0, 255))
    assert np.asarray(decode(encoded(image, "PNG"), "p", 10)).tolist() == [[[255, 255, 255], [255, 0, 0]]]


def test_sixteen_bit_grey_is_scaled():
    grey = Image.fromarray(np.array([[0, 32768, 65535]], dtype=np.uint16))
    assert np.asarray(decode(encoded(grey, "PNG"), "p", 10))[0, :, 0].tolist() == [0, 128, 255]


def test_an_animation_shows_its_first_frame():
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert np.asarray(decode(data, "p", 100))[0, 0].tolist() == [255, 0, 0]


def test_the_pixel_limit_is_read_from_the_header():
    image = encoded(Image.new("1", (1000, 1000)), "PNG")
    assert decode(image, "p", 1_000_000).size == (1000, 1000)
    with pytest.raises(ApiError) as caught:
        decode(image[:60], "p", 999_999)  # there is hardly more than the header
    assert caught.value.code == "image_too_large"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_whatever_is_wrong_with_a_file_it_is_the_files_fault(kind):
    """Bytes changed, cut and repeated at random: a picture or a 400, and nothing else."""
    rng = random.Random(kind)
    whole = encoded(picture(1, (64, 48)), kind)
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        with contextlib.suppress(ApiError):
            assert decode(bytes(data), "p", 10**6).mode == "RGB"


def tiff_of_tiles(side: int) -> bytes:
    """A grey TIFF of one pixel, in one tile of side * side."""
    tags = {256: 1, 257: 1, 258: 8, 259: 1, 262: 1, 277: 1, 322: side, 323: side, 324: 8, 325: 1}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)


def test_the_tiles_of_a_tiff_count_as_its_pixels():
    """They are decoded whole: a picture of one pixel may ask for gigabytes."""
    assert open_picture(tiff_of_tiles(16), "p", 10**6).size == (1, 1)
    with pytest.raises(ApiError) as caught:
        open_picture(tiff_of_tiles(20000), "p", 10**6)
    assert caught.value.code == "image_too_large"


def test_a_jpeg_of_very_many_scans():
    """Each goes over the whole picture, and takes some bytes of the file."""
    whole = encoded(Image.new("L", (64, 64)), "JPEG", progressive=True)
    assert decode(whole, "p", 10**6).size == (64, 64)
    scan = whole[whole.index(b"\xff\xda") : -2]
    with pytest.raises(ApiError, match="more than 100 scans"):
        open_picture(whole[:-2] + scan * 200 + whole[-2:], "p", 10**6)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32])
def test_every_deep_grey(dtype):
    grey = np.array([[0, 257, 32768, 65535]]).astype(dtype)
    if dtype is np.float32:
        grey = grey / 65535
    data = encoded(Image.fromarray(grey), "TIFF")
    assert np.asarray(decode(data, "p", 10))[0, :, 0].tolist() == [0, 1, 128, 255]
