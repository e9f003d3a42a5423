"""What is asked: pictures, texts and their mixture, the same for every server."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

# Width and height of pictures by their number of tiles; shares of requests are those of benchmarks.encoder.
PICTURES = {1: (336, 336), 5: (640, 480), 7: (800, 600), 13: (1024, 768), 16: (1920, 1080), 17: (1344, 1344)}
SHARES = {1: 0.10, 5: 0.15, 7: 0.05, 13: 0.30, 16: 0.20, 17: 0.20}
WORDS = "the a red blue old new house river number picture street bird tells shows under over because after".split()


@dataclass(frozen=True)
class Workload:
    """tiles: of each request's picture, None draws it from SHARES; images: pictures of a request that has some.

    text_share: of requests without a picture; words: of a text-only request, others have 8; output: tokens;
    burst: requests that are sent at once to find what a server can do.
    """

    tiles: int | None
    images: int
    text_share: float
    words: int
    output: int
    burst: int


WORKLOADS = {
    "17-tile picture": Workload(tiles=17, images=1, text_share=0.0, words=8, output=32, burst=48),
    "mixed chat": Workload(tiles=None, images=1, text_share=0.8, words=200, output=64, burst=160),
    "text only": Workload(tiles=None, images=0, text_share=1.0, words=200, output=64, burst=256),
    "1-tile picture": Workload(tiles=1, images=1, text_share=0.0, words=8, output=32, burst=96),
    "four pictures": Workload(tiles=5, images=4, text_share=0.0, words=8, output=32, burst=32),
}


def write_requests(workload: Workload, count: int, seed: int, path: Path) -> None:
    """Writes `count` requests as JSON lines for vLLM's load generator; one seed, one sequence of requests.

    No two pictures are equal, and no two texts begin alike: neither side's caches may answer.
    """
    with path.open("w") as lines:
        for content in _requests(workload, count, np.random.default_rng(seed)):
            lines.write(json.dumps({"content": content}) + "\n")


def _requests(workload: Workload, count: int, generator: np.random.Generator) -> Iterator[list[dict[str, Any]]]:
    for _ in range(count):
        if generator.random() < workload.text_share:
            yield [_text(workload.words, generator)]
            continue
        tiles = workload.tiles or int(generator.choice(list(SHARES), p=list(SHARES.values())))
        pictures = [
            {"type": "image_url", "image_url": {"url": picture_url(PICTURES[tiles], generator)}}
            for _ in range(workload.images)
        ]
        yield [*pictures, _text(8, generator)]


def _text(words: int, generator: np.random.Generator) -> dict[str, Any]:
    return {"type": "text", "text": f"{generator.integers(10**9)} {' '.join(generator.choice(WORDS, words))}"}


def picture_url(size: tuple[int, int], generator: np.random.Generator) -> str:
    """A JPEG of smooth noise, about as many bytes as a photo of that size."""
    width, height = size
    noise = generator.integers(0, 256, (height // 12, width // 12, 3), dtype=np.uint8)
    picture = io.BytesIO()
    Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC).save(picture, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(picture.getvalue()).decode()
