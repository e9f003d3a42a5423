"""Encoded pictures to upright RGB.

What a picture will take is read from its header, before a pixel is decoded. Transparency is composited on white, 16-bit
grey is scaled, EXIF orientation is applied, an animation shows its first frame.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from router.errors import ApiError, bad_request

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
ACCEPTED = "PNG, JPEG, WebP, GIF, BMP or TIFF"

# EXIF orientation -> the transpositions that turn the stored picture upright (EXIF 2.32, tag 274).
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# A progressive JPEG has about ten scans, each of which goes over the whole picture; a few bytes make another one.
MAX_JPEG_SCANS = 100
START_OF_SCAN = b"\xff\xda"
TILE_WIDTH, TILE_LENGTH = 322, 323  # TIFF 6.0, section 15
PIECE = 2**20  # pixels

# A cut-off file is an error, never a picture that is grey below a line. The limit on pixels is the caller's.
ImageFile.LOAD_TRUNCATED_IMAGES = False
Image.MAX_IMAGE_PIXELS = None
# Pillow warns of odd metadata, once for each request that carries it. Set for good: decoding runs in several threads.
warnings.filterwarnings("ignore", module=r"PIL\.")


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A picture whose header was read. path: names its part in errors; size: (width, height) as stored."""

    path: str
    size: tuple[int, int]
    _image: Image.Image

    @property
    def weight(self) -> int:
        """Pixels, at 15 bytes of memory each, that decoding and cutting takes: as many as it has, or more."""
        pixels = self.size[0] * self.size[1]
        # libwebp decodes as for an animation, with a second canvas; what is transparent is laid on another picture.
        # 17 to 20 bytes a pixel were seen.
        heavy = self._image.format == "WEBP" or self._image.has_transparency_data
        return pixels * 3 // 2 if heavy else pixels

    def rgb(self) -> Image.Image:
        """The picture, upright; only once, since nothing of it is kept. Raises ApiError 400: cut off or damaged."""
        with _faults_of_the_file(self.path):
            # Before the EXIF block is read: that loads a PNG too, and a second load after a failed one says nothing.
            self._image.load()
            orientation = _orientation(self._image)
            upright = self._image.transpose(UPRIGHT[orientation]) if orientation in UPRIGHT else self._image
            rgb = _to_rgb(upright)
            if rgb is not self._image:
                self._image.close()
            return rgb


def open_picture(data: bytes, path: str, max_pixels: int) -> Picture:
    """Raises ApiError 400: none of the accepted formats, more than `max_pixels` pixels, or made to be slow."""
    with _faults_of_the_file(path):
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        width, height = image.size
        # The blocks of a TIFF may be larger than its picture.
        block = _block_pixels(image) if isinstance(image, TiffImageFile) else 0
        if max(width * height, block) > max_pixels:
            message = f"{path}: the picture has {width}x{height} pixels, more than {max_pixels} in all"
            raise bad_request(message, path, "image_too_large")
        if image.format == "JPEG" and data.count(START_OF_SCAN) > MAX_JPEG_SCANS:
            message = f"{path}: the JPEG has more than {MAX_JPEG_SCANS} scans"
            raise bad_request(message, path, "image_invalid")
        return Picture(path, (width, height), image)


@contextmanager
def _faults_of_the_file(path: str) -> Iterator[None]:
    try:
        yield
    except UnidentifiedImageError:
        raise bad_request(f"{path}: not a picture in an accepted format ({ACCEPTED})", path, "image_invalid") from None
    except ApiError:
        raise
    except Exception:
        # On damaged files Pillow's decoders raise whatever they stumble over: OSError, struct.error, KeyError...
        message = f"{path}: the picture is damaged or cut off; accepted formats are {ACCEPTED}"
        raise bad_request(message, path, "image_invalid") from None


def _block_pixels(image: TiffImageFile) -> int:
    """Pixels of one tile of a TIFF, which is decoded whole; 0 for one in strips."""
    return int(image.tag_v2.get(TILE_WIDTH, 0)) * int(image.tag_v2.get(TILE_LENGTH, 0))


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # a damaged EXIF block says nothing about the pixels
        return 1


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    if image.mode in ("I;16", "I;16L", "I;16B", "I", "F"):
        return Image.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        ground = Image.new("RGB", layer.size, (255, 255, 255))
        ground.paste(layer, mask=layer)
        return ground
    return image.convert("RGB")


def _eight_bits(grey: NDArray[np.generic]) -> NDArray[np.uint8]:
    """16-bit grey scaled by 255 / 65535, which is 1 / 257; Pillow's own conversion would clip at 255.

    Floats are taken as from 0 to 1 where none is above 1, else as from 0 to 255.
    """
    flat = grey.reshape(-1)
    scaled = np.empty(flat.shape, np.uint8)
    # Piece by piece, so that no whole picture is there in a wider type.
    pieces = [slice(start, start + PIECE) for start in range(0, len(flat), PIECE)]
    if grey.dtype.kind == "f":
        most = max(np.nan_to_num(flat[piece].astype(np.float32)).max() for piece in pieces)
        scale = np.float32(255 if most <= 1 else 1)
        for piece in pieces:
            scaled[piece] = np.clip(np.rint(np.nan_to_num(flat[piece].astype(np.float32)) * scale), 0, 255)
    else:
        for piece in pieces:
            scaled[piece] = (np.clip(flat[piece], 0, 65535).astype(np.uint32) + 128) // 257
    return scaled.reshape(grey.shape)
