"""Replicas that die under a running application: what clients see, and that it recovers by itself."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import time
from collections import Counter

import httpx
import pytest

from tests.chat import body, endpoint, post
from tests.cluster import actors, bytes_spilled, engine_processes, kill_actors
from tests.pictures import part, picture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
RECOVERY_S = 300
# A picture that was answered once may be answered again without an encoder.
NEW_SEEDS = itertools.count(10_000)


@pytest.fixture
def recovered(tessera):
    """Afterwards the application answers as before, for the tests that follow."""
    yield
    wait_for_picture(tessera)


def kill(deployment: str) -> None:
    """Ends every replica of a deployment at once."""
    assert kill_actors(f"SERVE_REPLICA::tessera#{deployment}#")


def wait_for_picture(tessera) -> None:
    """Until one goes the whole way through both pools."""
    deadline = time.monotonic() + RECOVERY_S
    while (answer := post(tessera, part(picture(next(NEW_SEEDS))), "What?")).status_code != 200:
        assert answer.status_code == 503, answer.text
        assert time.monotonic() < deadline, answer.text
        time.sleep(1)


def test_without_encoders_pictures_are_refused_at_once_and_text_goes_on(tessera, recovered):
    expected = post(tessera, "Hello?").json()["choices"]
    post(tessera, part(picture(1)), "What?")
    kill("EncoderPool")
    started = time.monotonic()
    refused = post(tessera, part(picture(2)), "What?")
    spent = time.monotonic() - started
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "encoder_unavailable"
    assert int(refused.headers["retry-after"]) >= 1
    assert spent < 4, "two seconds on a machine that is not busy"
    assert post(tessera, "Hello?").json()["choices"] == expected
    kept = post(tessera, part(picture(1)), "What?")
    assert kept.status_code == 200, "an embedding outlives the process that made it"


async def test_encoders_that_die_under_streamed_requests_leave_no_good_looking_stream(tessera, recovered):
    requests = [body(tessera, part(picture(500 + i, (1344, 1344))), "What?", stream=True) for i in range(8)]
    async with httpx.AsyncClient(timeout=120) as client:
        calls = [asyncio.create_task(client.post(endpoint(tessera), json=request)) for request in requests]
        await asyncio.sleep(0.5)
        kill("EncoderPool")
        for answer in await asyncio.gather(*calls):
            if answer.status_code == 200:
                assert answer.text.endswith("data: [DONE]\n\n")
            else:
                assert answer.status_code == 503
                assert answer.json()["error"]["code"] == "encoder_unavailable"


def stream_until_killed(tessera, end) -> list[str]:
    """The events of a long stream after whose first event `end` is called."""
    long = body(tessera, part(picture(3)), "Go on.", stream=True, max_tokens=8000, ignore_eos=True)
    events = []
    with httpx.stream("POST", endpoint(tessera), json=long, timeout=120) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if not line:
                continue
            events.append(line.removeprefix("data: "))
            if len(events) == 1:
                end()
    return events


def kill_engine() -> None:
    processes = engine_processes("tessera")
    assert processes
    for process in processes:
        process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("end", [lambda: kill("LLMPool"), kill_engine], ids=["replica", "engine"])
def test_a_decoder_that_dies_within_a_stream_ends_it_with_an_error(tessera, recovered, end):
    events = stream_until_killed(tessera, end)
    assert "[DONE]" not in events
    assert set(json.loads(events[-1])["error"]) == {"message", "type", "param", "code"}
    refused = post(tessera, "Hello?")
    assert refused.status_code in (200, 503), refused.text


async def test_an_engine_that_dies_under_load_is_replaced(tessera, recovered):
    """Whoever is not answered is told to come back, none waits for ever, and the replica does not stay as it is."""
    answers: list[httpx.Response] = []

    async def client_until(done: asyncio.Event) -> None:
        async with httpx.AsyncClient(timeout=120) as client:
            while not done.is_set():
                answers.append(await client.post(endpoint(tessera), json=body(tessera, "Hello?")))
                await asyncio.sleep(0.1)

    done = asyncio.Event()
    clients = [asyncio.create_task(client_until(done)) for _ in range(8)]
    await asyncio.sleep(2)
    before = actors("SERVE_REPLICA::tessera#LLMPool#")
    kill_engine()
    started = time.monotonic()
    while set(actors("SERVE_REPLICA::tessera#LLMPool#")) & set(before):
        assert time.monotonic() - started < 30
        await asyncio.sleep(0.5)
    await asyncio.to_thread(wait_for_picture, tessera)
    done.set()
    await asyncio.gather(*clients)
    assert answers[-1].status_code == 200
    for answer in answers:
        assert answer.status_code in (200, 503), answer.text
        assert answer.status_code == 200 or int(answer.headers["retry-after"]) >= 1


async def test_two_hundred_at_once_are_all_answered(tessera):
    """The pictures are large, together more than may be in flight; nothing of them goes to disk."""
    spilled = bytes_spilled()
    async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=None)) as client:
        pictures = [picture(3000 + i, (1344, 1344)) for i in range(200)]
        requests = [body(tessera, part(one, "JPEG"), "What?") for one in pictures]
        answers = await asyncio.gather(*(client.post(endpoint(tessera), json=request) for request in requests))
    statuses = Counter(answer.status_code for answer in answers)
    assert statuses.keys() <= {200, 429}, statuses
    assert statuses[200] > 0
    assert bytes_spilled() == spilled
    assert all(answer.headers["retry-after"] for answer in answers if answer.status_code == 429)
