"""A client that leaves takes its work with it."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx
import pytest
from ray import serve

from encoder_pool.settings import LOAD_SIGNAL
from tests.chat import endpoint
from tests.cluster import bytes_used
from tests.conftest import WEB_HOST
from tests.pictures import part, picture, user

# Seconds after which nothing of a client that left goes on.
LEAVE_S = 1
SETTLE_S = 10

Look = Callable[[], Awaitable[dict[str, int]]]
NOTHING = {"unfinished": 0}


@pytest.fixture(scope="module")
def stats(tessera) -> Look:
    """What the decoder has in hand: {"unfinished": requests}."""
    handle = serve.get_deployment_handle("LLMPool", "tessera")
    return lambda: asyncio.to_thread(lambda: handle.stats.remote().result(timeout_s=30))


@pytest.fixture(scope="module")
def outstanding_tiles(tessera) -> Callable[[], Awaitable[float]]:
    """The tiles that wait in the encoder or are being encoded."""
    handle = serve.get_deployment_handle("EncoderPool", "tessera")
    return lambda: asyncio.to_thread(lambda: handle.record_autoscaling_stats.remote().result(timeout_s=30)[LOAD_SIGNAL])


async def settled(stats: Look, seconds: float) -> dict[str, int]:
    """What `stats` says once it is nothing, or after `seconds`."""
    deadline = time.monotonic() + seconds
    while any((found := await stats()).values()) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return found


def long_request(tessera, **more) -> dict:
    return {
        "model": tessera.model,
        "messages": [user(part(picture(0, (700, 700))), "Tell me everything.")],
        "max_tokens": 8000,
        "ignore_eos": True,
    } | more


async def leave(call: asyncio.Task) -> None:
    """The client hangs up."""
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


@pytest.fixture
async def client():
    async with httpx.AsyncClient(timeout=60) as client:
        yield client


async def test_leaving_a_stream_ends_its_generation(tessera, stats, client):
    async with client.stream("POST", endpoint(tessera), json=long_request(tessera, stream=True)) as answer:
        lines = answer.aiter_lines()
        event = json.loads((await anext(lines)).removeprefix("data: "))
        assert event["object"] == "chat.completion.chunk"
        assert (await stats())["unfinished"] == 1
    assert await settled(stats, LEAVE_S) == NOTHING


async def test_leaving_before_the_answer_ends_its_generation(tessera, stats, client):
    call = asyncio.create_task(client.post(endpoint(tessera), json=long_request(tessera)))
    while not (await stats())["unfinished"]:
        assert not call.done()
        await asyncio.sleep(0.05)
    await leave(call)
    assert await settled(stats, LEAVE_S) == NOTHING


@dataclass
class SilentHost:
    """A web host that takes a connection and never answers. url: of its picture."""

    url: str
    came: asyncio.Event
    left: asyncio.Event


@pytest.fixture
async def silent_host():
    host = SilentHost("", asyncio.Event(), asyncio.Event())

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host.came.set()
        while await reader.read(2**16):
            pass
        host.left.set()
        writer.close()

    async with await asyncio.start_server(hold, WEB_HOST, 0) as server:
        host.url = f"http://{WEB_HOST}:{server.sockets[0].getsockname()[1]}/picture.png"
        yield host


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_ends_a_fetch(tessera, client, silent_host, stream):
    image = {"type": "image_url", "image_url": {"url": silent_host.url}}
    request = long_request(tessera, messages=[user(image, "What?")], stream=stream)
    call = asyncio.create_task(client.post(endpoint(tessera), json=request))
    await asyncio.wait_for(silent_host.came.wait(), 10)
    await leave(call)
    await asyncio.wait_for(silent_host.left.wait(), LEAVE_S)


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_takes_tiles_out_of_the_encoders_queue(tessera, client, outstanding_tiles, stream):
    """What is being encoded goes on; it may be wanted by others of its batch."""
    seed = 7000 + 100 * stream
    *many, one = [part(picture(seed + i, (1344, 1344))) for i in range(4)]  # 17 tiles each
    first = long_request(tessera, messages=[user(*many, "What?")], max_tokens=1)
    second = long_request(tessera, messages=[user(one, "What?")], stream=stream)
    encoding = asyncio.create_task(client.post(endpoint(tessera), json=first))
    while await outstanding_tiles() < 3 * 17:
        assert not encoding.done()
    call = asyncio.create_task(client.post(endpoint(tessera), json=second))
    while await outstanding_tiles() < 4 * 17:
        assert not encoding.done()
    await leave(call)
    left = time.monotonic()
    while await outstanding_tiles() > 3 * 17:
        assert time.monotonic() - left < LEAVE_S
    assert await outstanding_tiles() == 3 * 17, "the first request is not encoded yet"
    assert (await encoding).status_code == 200


async def test_leaving_at_any_time_leaves_nothing_behind(tessera, stats, client):
    """Before, during and after the encode; the next client is answered as if nothing had been."""
    for i in range(12):
        call = asyncio.create_task(client.post(endpoint(tessera), json=long_request(tessera, stream=bool(i % 2))))
        await asyncio.sleep(0.05 * i)
        await leave(call)
    assert await settled(stats, LEAVE_S) == NOTHING
    answer = await client.post(endpoint(tessera), json=long_request(tessera, max_tokens=2))
    assert answer.status_code == 200


@pytest.mark.slow
async def test_five_hundred_that_leave_at_random_leave_nothing_behind(tessera, stats, outstanding_tiles, client):
    """Streamed and not, with pictures that are new and pictures that are not; sixteen at a time."""
    rng = random.Random(43)
    # What the store may keep meanwhile, and less than what the five hundred would leave.
    room = bytes_used() + 16 * 2**20
    slots = asyncio.Semaphore(16)

    async def come_and_go(number: int) -> None:
        image = part(picture(rng.randrange(250), (700, 700)))
        request = long_request(tessera, messages=[user(image, "Tell.")], stream=bool(number % 2))
        async with slots:
            call = asyncio.create_task(client.post(endpoint(tessera), json=request))
            await asyncio.sleep(rng.uniform(0, 0.6))
            await leave(call)

    await asyncio.gather(*(come_and_go(number) for number in range(500)))
    assert await settled(stats, SETTLE_S) == NOTHING
    for _ in range(SETTLE_S * 4):
        if bytes_used() <= room and not await outstanding_tiles():
            break
        await asyncio.sleep(0.25)
    assert await outstanding_tiles() == 0
    assert bytes_used() <= room
    answer = await client.post(endpoint(tessera), json=long_request(tessera, max_tokens=2))
    assert answer.status_code == 200
