"""Encoded pictures to tiles, in threads; what a picture will take is known from its header, before it is decoded."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from encoder_pool.heaps import trim_heaps
from router.config import RouterSettings
from router.image_decode import Picture, open_picture
from router.pixel_gate import PixelGate
from router.tiling import Tiler, Tiles, tiles_of

# Pixels of a picture after which the C library gives back what it keeps.
LARGE = 16_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Uncut:
    """A picture before it is decoded. max_tiles: of its canvas; tiles: what it will be cut into, the global one too."""

    picture: Picture
    max_tiles: int
    tiles: int


class ImageCutter:
    """One for the life of a Router; belongs to one event loop."""

    def __init__(self, settings: RouterSettings, tiler: Tiler) -> None:
        self._max_pixels = settings.max_image_pixels
        self._tiler = tiler
        self._threads = ThreadPoolExecutor(settings.image_threads, thread_name_prefix="image")
        # Headers do not wait behind pictures.
        self._headers = ThreadPoolExecutor(1, thread_name_prefix="image-header")
        self._max_decoding_pixels = settings.max_decoding_pixels
        self._gate = PixelGate(settings.max_decoding_pixels)

    async def look(self, data: bytes, path: str, max_tiles: int) -> Uncut:
        """Raises ApiError 400 where the header says that the picture cannot be served; `path` names its part."""
        return await asyncio.get_running_loop().run_in_executor(self._headers, self._look, data, path, max_tiles)

    def _look(self, data: bytes, path: str, max_tiles: int) -> Uncut:
        picture = open_picture(data, path, self._max_pixels)
        return Uncut(picture, max_tiles, tiles_of(self._tiler.canvas(picture.size, max_tiles)))

    async def cut(self, uncut: Uncut) -> Tiles:
        """Waits until enough of `max_decoding_pixels` is free. Raises ApiError 400: damaged or cut off."""
        loop = asyncio.get_running_loop()
        pixels = min(uncut.picture.weight, self._max_decoding_pixels)
        await self._gate.acquire(pixels)
        work = self._threads.submit(self._cut, uncut)
        # Not when this coroutine ends: a thread goes on though its request has left.
        work.add_done_callback(lambda _: loop.call_soon_threadsafe(self._gate.release, pixels))
        return await asyncio.wrap_future(work)

    def _cut(self, uncut: Uncut) -> Tiles:
        rgb = uncut.picture.rgb()
        try:
            return self._tiler.tile(rgb, uncut.max_tiles)
        finally:
            rgb.close()
            if uncut.picture.weight >= LARGE:
                # As large blocks as Pillow's are kept too: one such picture left a thread with up to 1.2 GB. Smaller
                # ones are cut in half the time or less where that is allowed.
                trim_heaps()
