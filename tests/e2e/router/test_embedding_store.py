"""What is kept for whom, and for how long, behind a running application."""

from __future__ import annotations

import asyncio
import base64
import json

import httpx
import psutil
import pytest
from PIL import Image

from tests.application import ROOT
from tests.chat import body, endpoint, post
from tests.pictures import part

CASES = ROOT / "tests" / "cases"
PLAN = json.loads((CASES / "plan" / "distinct_images.json").read_text())
CLIENTS = 8
# Of this application's store (see conftest.py), in pictures of one tile of the demo model.
KEPT_PICTURES = 16 * 2**20 // (144 * 128 * 2)


def logprobs(tessera, file: str) -> list[float]:
    """Of the answer to a picture, which depend on its embedding in every digit."""
    data = base64.b64encode((CASES / "cache" / file).read_bytes()).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    answer = post(tessera, image, "What?", logprobs=True)
    assert answer.status_code == 200
    return [token["logprob"] for token in answer.json()["choices"][0]["logprobs"]["content"]]


@pytest.mark.parametrize("pair", [("30x150.png", "150x30.png"), ("palette_a.png", "palette_b.png")])
def test_pictures_of_equal_bytes_in_another_shape_or_palette_differ(tessera, pair):
    one, other = (logprobs(tessera, file) for file in pair)
    assert one != other


def test_the_same_pixels_in_another_file_have_the_same_value(tessera):
    one, other = (logprobs(tessera, file) for file in ("original.png", "reencoded.png"))
    assert one == pytest.approx(other, abs=1e-3)


def resident_bytes(deployment: str) -> int:
    """Of the deployment's replicas on this machine."""
    title = f"ray::ServeReplica:tessera:{deployment}"
    processes = [p for p in psutil.process_iter(["cmdline"]) if title in " ".join(p.info["cmdline"] or [])]
    assert processes
    return sum(process.memory_info().rss for process in processes)


@pytest.mark.slow
async def test_more_pictures_than_any_store_holds_leave_memory_flat(tessera):
    sizes = []
    async with httpx.AsyncClient(timeout=120) as client:
        slots = asyncio.Semaphore(CLIENTS)

        async def ask(number: int) -> None:
            image = Image.new("RGB", tuple(PLAN["size"]), (number % 256, number // 256, 7))
            async with slots:
                answer = await client.post(endpoint(tessera), json=body(tessera, part(image), "?", max_tokens=1))
            assert answer.status_code == 200

        half = PLAN["images"] // 2
        assert half > KEPT_PICTURES
        for first in (0, half):
            await asyncio.gather(*(ask(number) for number in range(first, first + half)))
            sizes.append(resident_bytes("Router") + resident_bytes("EncoderPool"))
    assert sizes[1] - sizes[0] < half * 144 * 128 * 2 / 2, "half of what would be kept of the second thousand"
