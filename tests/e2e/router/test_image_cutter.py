"""Many pictures of the largest size at once, over HTTP: the Router's memory stays bounded."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter

import httpx
import pytest
from PIL import Image

from router.config import RouterSettings
from tests.chat import body, endpoint
from tests.cluster import replica_processes
from tests.pictures import encoded

SIDE = 8000
# Of memory, as the setting `max_decoding_pixels` says.
BYTES_A_PIXEL = 15


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_sixty_four_of_the_largest_pictures(tessera):
    settings = RouterSettings.model_validate(tessera.config["applications"][0]["args"]["router"])
    assert settings.max_image_pixels == SIDE**2
    file = encoded(Image.new("RGB", (SIDE, SIDE), "teal"))
    # What follows the end of a PNG changes its hash alone.
    files = [base64.b64encode(file + bytes([i])).decode() for i in range(64)]
    urls = [f"data:image/png;base64,{content}" for content in files]
    requests = [body(tessera, {"type": "image_url", "image_url": {"url": url}}, "What?") for url in urls]
    [router] = replica_processes("tessera", "Router")
    before = peak = router.memory_info().rss

    async with httpx.AsyncClient(timeout=600, limits=httpx.Limits(max_connections=None)) as client:
        calls = asyncio.gather(*(client.post(endpoint(tessera), json=request) for request in requests))
        while not calls.done():
            peak = max(peak, router.memory_info().rss)
            await asyncio.sleep(0.02)
    statuses = Counter(answer.status_code for answer in await calls)
    assert statuses.keys() <= {200, 429}, statuses
    assert statuses[200] >= 32
    # What is decoded, and the tiles and embeddings that are admitted beside it.
    most = settings.max_decoding_pixels * BYTES_A_PIXEL + settings.in_flight_bytes
    assert SIDE**2 * 3 < peak - before < most
