"""What pictures take, before and while they are decoded."""

import asyncio
import subprocess
import sys
import threading

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
    uncut = [await cutter.look(data, "p", 1) for _ in range(6)]
    tasks = [asyncio.create_task(cutter.cut(one)) for one in uncut]
    await asyncio.sleep(0)
    for task in tasks[:5]:
        task.cancel()
    assert (await asyncio.wait_for(tasks[5], 30)).aspect == (1, 1)
    assert (await cutter.cut(uncut[0])).aspect == (1, 1)


async def test_a_picture_over_the_limit_is_not_decoded(cutter):
    with pytest.raises(ApiError) as caught:
        await cutter.look(encoded(Image.new("1", (1001, 1000))), "p", 16)
    assert caught.value.code == "image_too_large"


BURST = """
import asyncio, io, resource, sys
from PIL import Image
from encoder_pool.settings import ModelSettings
from router.config import RouterSettings
from router.image_cutter import ImageCutter
from router.tiling import Tiler

async def main():
    cutter = ImageCutter(RouterSettings(image_threads=4), Tiler(ModelSettings(source=sys.argv[1])))
    buffer = io.BytesIO()
    Image.new("LA", (8000, 8000), 128).save(buffer, "PNG")
    async def one():
        return len((await cutter.cut(await cutter.look(buffer.getvalue(), "p", 16))).pixels)
    await one()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert set(await asyncio.gather(*(one() for _ in range(64)))) == {17}
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sixty_four_pictures_of_the_largest_size_at_once(model):
    """MiB beyond what one of them takes: room for another, not for 64."""
    done = subprocess.run([sys.executable, "-c", BURST, model.source], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1500
