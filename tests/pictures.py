"""Pictures and chat messages that the tests send."""

from __future__ import annotations

import base64
import io
import random
from typing import Any

import numpy as np
from PIL import Image, ImageDraw


def picture(seed: int, size: tuple[int, int] = (336, 336)) -> Image.Image:
    """Coloured boxes that differ from seed to seed."""
    rng = random.Random(seed)
    image = Image.new("RGB", size, tuple(rng.randbytes(3)))
    draw = ImageDraw.Draw(image)
    for _ in range(12):
        x, y = rng.randrange(size[0]), rng.randrange(size[1])
        draw.rectangle([x, y, x + size[0] // 4, y + size[1] // 4], fill=tuple(rng.randbytes(3)))
    return image


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The picture as a file of format `kind`, saved with Pillow's options of that format."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def data_url(image: Image.Image, kind: str = "PNG") -> str:
    return f"data:image/{kind.lower()};base64,{base64.b64encode(encoded(image, kind)).decode()}"


def part(image: Image.Image, kind: str = "PNG") -> dict[str, Any]:
    """A content part that carries the picture."""
    return {"type": "image_url", "image_url": {"url": data_url(image, kind)}}


def user(*content: dict[str, Any] | str) -> dict[str, Any]:
    """A user's message; strings become text parts."""
    return {"role": "user", "content": [{"type": "text", "text": c} if isinstance(c, str) else c for c in content]}


def npy(array: np.ndarray, **options: Any) -> bytes:
    """The array as a file of format .npy."""
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()
