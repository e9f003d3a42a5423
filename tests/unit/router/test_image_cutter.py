"""What pictures take, before and while they are decoded."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from PIL import Image

from router.config import RouterSettings
from router.errors import ApiError
from router.image_cutter import ImageCutter
from router.tiling import Tiler
from tests.pictures import encoded, picture


@pytest.fixture
def cutter(model):
    return ImageCutter(RouterSettings(image_threads=4, max_image_pixels=10**6, max_decoding_pixels=10**6), Tiler(model))


async def test_the_header_tells_what_the_picture_becomes(cutter):
    for size in [(1, 1), (336, 336), (700, 300), (300, 900), (5000, 1), (1, 5000), (999, 1000)]:
        uncut = await cutter.look(encoded(picture(1, size)), "p", 16)
        assert len((await cutter.cut(uncut)).pixels) == uncut.tiles


async def test_large_pictures_take_turns(cutter, monkeypatch):
    """Four threads, and room for two of 400,000 pixels."""
    running, most, lock = 0, 0, threading.Lock()
    honest = cutter._cut

    def cut(uncut):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        try:
            return honest(uncut)
        finally:
            with lock:
                running -= 1

    monkeypatch.setattr(cutter, "_cut", cut)
    data = encoded(Image.new("RGB", (500, 800)))
    uncut = [await cutter.look(data, "p", 1) for _ in range(8)]
    await asyncio.gather(*(cutter.cut(one) for one in uncut))
    assert most == 2


async def test_who_leaves_gives_back_its_pixels(cutter):
    data = encoded(Image.new("RGB", (1000, 1000)))
    *uncut, last = [await cutter.look(data, "p", 1) for _ in range(7)]
    tasks = [asyncio.create_task(cutter.cut(one)) for one in uncut]
    await asyncio.sleep(0)
    for task in tasks[:5]:
        task.cancel()
    assert (await asyncio.wait_for(tasks[5], 30)).aspect == (1, 1)
    # Another one: a picture is read once, and the threads may have begun with those that were left.
    assert (await asyncio.wait_for(cutter.cut(last), 30)).aspect == (1, 1)


async def test_a_picture_over_the_limit_is_not_decoded(cutter):
    with pytest.raises(ApiError) as caught:
        await cutter.look(encoded(Image.new("1", (1001, 1000))), "p", 16)
    assert caught.value.code == "image_too_large"


# Prints the MiB that so many pictures of the largest size, given as a file, take at most, and those that they leave.
BURST = """
import asyncio, sys
from pathlib import Path
from encoder_pool.settings import ModelSettings
from router.config import RouterSettings
from router.image_cutter import ImageCutter
from router.tiling import Tiler

def mebibytes(what):
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what)]
    return int(line.split()[1]) // 1024

async def main(checkpoint, file, count):
    cutter = ImageCutter(RouterSettings(image_threads=4), Tiler(ModelSettings(source=checkpoint)))
    data = Path(file).read_bytes()
    async def one():
        return len((await cutter.cut(await cutter.look(data, "p", 16))).pixels)
    before = mebibytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the highest is counted anew
    assert set(await asyncio.gather(*(one() for _ in range(int(count))))) == {17}
    print(mebibytes("VmHWM") - before, mebibytes("VmRSS") - before)

asyncio.run(main(*sys.argv[1:]))
"""

SIDE = 8000
LARGEST: dict[str, tuple[Callable[[], Image.Image], str, dict[str, object]]] = {
    "grey with alpha": (lambda: Image.new("LA", (SIDE, SIDE), 128), "PNG", {}),
    "palette with transparency": (lambda: Image.new("P", (SIDE, SIDE), 3), "PNG", {"transparency": 3}),
    "16-bit grey": (lambda: Image.new("I;16", (SIDE, SIDE), 500), "PNG", {}),
    "32-bit float": (lambda: Image.new("F", (SIDE, SIDE), 0.5), "TIFF", {"compression": "tiff_deflate"}),
    "progressive JPEG": (lambda: Image.new("RGB", (SIDE, SIDE), "teal"), "JPEG", {"progressive": True}),
    "CMYK JPEG": (lambda: Image.new("CMYK", (SIDE, SIDE), "teal"), "JPEG", {"progressive": True}),
    "WebP with alpha": (
        lambda: Image.new("RGBA", (SIDE, SIDE), (1, 2, 3, 90)),
        "WEBP",
        {"lossless": True, "method": 0},
    ),
    "GIF with transparency": (lambda: Image.new("P", (SIDE, SIDE), 3), "GIF", {"transparency": 3}),
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "count"), [*((kind, 4) for kind in LARGEST), ("grey with alpha", 64)])
def test_pictures_of_the_largest_size_take_what_their_pixels_may(model, tmp_path, kind, count):
    """As many as come at once; and they give it back."""
    make, form, options = LARGEST[kind]
    make().save(tmp_path / "picture", form, **options)
    command = [sys.executable, "-c", BURST, model.source, str(tmp_path / "picture"), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    highest, left = (int(number) for number in done.stdout.split())
    pixels = RouterSettings().max_decoding_pixels
    tiles = count * 17 * 3 * 336**2
    assert SIDE**2 * 3 < highest * 2**20 < pixels * 15 + tiles
    assert left < 200
