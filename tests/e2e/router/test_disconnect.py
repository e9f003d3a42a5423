"""A client that leaves takes its work with it."""

from __future__ import annotations

import asyncio
import json
import random

import httpx
import pytest
from ray import serve

from tests.chat import endpoint
from tests.cluster import bytes_used
from tests.pictures import part, picture, user

SETTLE_S = 10


@pytest.fixture(scope="module")
def stats(tessera):
    """What the decoder has in hand: {"unfinished": requests, "tickets": embeddings not taken yet}."""
    handle = serve.get_deployment_handle("LLMPool", "tessera")

    async def ask():
        return await asyncio.to_thread(lambda: handle.stats.remote().result(timeout_s=30))

    return ask


async def settled(stats) -> dict:
    for _ in range(SETTLE_S * 4):
        found = await stats()
        if not any(found.values()):
            break
        await asyncio.sleep(0.25)
    return found


def long_request(tessera, **more) -> dict:
    return {
        "model": tessera.model,
        "messages": [user(part(picture(0, (700, 700))), "Tell me everything.")],
        "max_tokens": 8000,
        "ignore_eos": True,
    } | more


async def test_leaving_a_stream_ends_its_generation(tessera, stats):
    async with httpx.AsyncClient(timeout=60) as client:
        url = f"{tessera.url}/v1/chat/completions"
        async with client.stream("POST", url, json=long_request(tessera, stream=True)) as answer:
            lines = answer.aiter_lines()
            event = json.loads((await anext(lines)).removeprefix("data: "))
            assert event["object"] == "chat.completion.chunk"
            assert (await stats())["unfinished"] == 1
    assert await settled(stats) == {"unfinished": 0, "tickets": 0}


async def test_leaving_before_the_answer_ends_its_generation(tessera, stats):
    async with httpx.AsyncClient(timeout=60) as client:
        call = asyncio.create_task(client.post(f"{tessera.url}/v1/chat/completions", json=long_request(tessera)))
        while not (await stats())["unfinished"]:
            assert not call.done()
            await asyncio.sleep(0.05)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert await settled(stats) == {"unfinished": 0, "tickets": 0}


async def test_leaving_at_any_time_leaves_nothing_behind(tessera, stats):
    """Before, during and after the encode; the next client is answered as if nothing had been."""
    async with httpx.AsyncClient(timeout=60) as client:
        url = f"{tessera.url}/v1/chat/completions"
        for i in range(12):
            body = long_request(tessera, stream=bool(i % 2))
            call = asyncio.create_task(client.post(url, json=body))
            await asyncio.sleep(0.05 * i)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        assert await settled(stats) == {"unfinished": 0, "tickets": 0}
        answer = await client.post(url, json=long_request(tessera, max_tokens=2))
        assert answer.status_code == 200


@pytest.mark.slow
async def test_five_hundred_clients_that_leave_at_random_leave_nothing_behind(tessera, stats):
    """Streamed and not, with pictures that are new and pictures that are not; sixteen at a time."""
    rng = random.Random(43)
    encoder = serve.get_deployment_handle("EncoderPool", "tessera")
    # What the store may keep meanwhile, and less than what the five hundred would leave.
    room = bytes_used() + 16 * 2**20
    slots = asyncio.Semaphore(16)
    async with httpx.AsyncClient(timeout=60) as client:

        async def leave(number: int) -> None:
            image = part(picture(rng.randrange(250), (700, 700)))
            request = long_request(tessera, messages=[user(image, "Tell.")], stream=bool(number % 2))
            async with slots:
                call = asyncio.create_task(client.post(endpoint(tessera), json=request))
                await asyncio.sleep(rng.uniform(0, 0.6))
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)

        await asyncio.gather(*(leave(number) for number in range(500)))
        assert await settled(stats) == {"unfinished": 0, "tickets": 0}
        queued = await asyncio.to_thread(lambda: encoder.stats.remote().result(timeout_s=30)["queued_tiles"])
        assert queued == 0
        for _ in range(SETTLE_S * 4):
            if bytes_used() <= room:
                break
            await asyncio.sleep(0.25)
        assert bytes_used() <= room
        answer = await client.post(endpoint(tessera), json=long_request(tessera, max_tokens=2))
        assert answer.status_code == 200
