"""Encoded pictures to upright RGB.

Size limits are read from the header, before a pixel is decoded. Transparency is composited on white, 16-bit grey is
scaled, EXIF orientation is applied, an animation shows its first frame.
"""

from __future__ import annotations

import io
import warnings

import numpy as np
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError

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

# A cut-off file is an error, never a picture that is grey below a line. The limit on pixels is the caller's.
ImageFile.LOAD_TRUNCATED_IMAGES = False
Image.MAX_IMAGE_PIXELS = None
# Pillow warns of odd metadata, once for each request that carries it. Set for good: decoding runs in several threads.
warnings.filterwarnings("ignore", module=r"PIL\.")


def decode(data: bytes, path: str, max_pixels: int) -> Image.Image:
    """The picture as an RGB image; `path` names its part in errors.

    Raises ApiError 400: not one of the accepted formats, cut off or damaged, more than `max_pixels` pixels.
    """
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        width, height = image.size
        if width * height > max_pixels:
            raise bad_request(
                f"{path}: the picture has {width}x{height} pixels, more than {max_pixels} in all",
                path,
                "image_too_large",
            )
        # Before the EXIF block is read: that loads a PNG too, and a second load after a failed one says nothing.
        image.load()
        orientation = _orientation(image)
        upright = image.transpose(UPRIGHT[orientation]) if orientation in UPRIGHT else image
        return _to_rgb(upright)
    except UnidentifiedImageError:
        raise bad_request(f"{path}: not a picture in an accepted format ({ACCEPTED})", path, "image_invalid") from None
    except ApiError:
        raise
    except Exception:
        # On damaged files Pillow's decoders raise whatever they stumble over: OSError, struct.error, KeyError...
        message = f"{path}: the picture is damaged or cut off; accepted formats are {ACCEPTED}"
        raise bad_request(message, path, "image_invalid") from None


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # a damaged EXIF block says nothing about the pixels
        return 1


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode in ("I;16", "I;16L", "I;16B", "I", "F"):
        return _from_deep_grey(image)
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        ground = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        return Image.alpha_composite(ground, layer).convert("RGB")
    return image.convert("RGB")


def _from_deep_grey(image: Image.Image) -> Image.Image:
    """16-bit grey scaled to 8 bits; Pillow's own conversion would clip at 255."""
    grey = np.asarray(image).astype(np.float64)
    if image.mode == "F":
        scale = 255.0 if grey.max() <= 1 else 1.0
    else:
        scale = 1 / 257  # 65535 -> 255
    return Image.fromarray(np.clip(np.rint(np.nan_to_num(grey * scale)), 0, 255).astype(np.uint8)).convert("RGB")
