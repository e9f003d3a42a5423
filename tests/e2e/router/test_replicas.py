"""One of two dies: what clients see, at a chosen moment and in two minutes of random deaths under load."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

import httpx
import pytest
import ray
from ray import serve

from tests.chat import body, endpoint, text_of
from tests.cluster import actors, bytes_used
from tests.e2e.router.conftest import NAME, wait_until_healthy
from tests.pictures import part, picture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

POOLS = {"router": "Router", "encoder": "EncoderPool", "decoder": "LLMPool"}
STORE = "store"
RECOVERY_S = 300
SETTLE_S = 30
CHAOS_S = 120
KILLS_OF_A_KIND = 2
CLIENTS = 8


def kill_one(kind: str) -> None:
    """Ends one replica of a pool, or the store actor, at once."""
    prefix = f"SERVE_DEPLOYMENT_ACTOR::{NAME}::" if kind == STORE else f"SERVE_REPLICA::{NAME}#{POOLS[kind]}#"
    ray.kill(actors(prefix)[0])


def whole() -> bool:
    """Whether everything is there twice."""
    deployments = serve.status().applications[NAME].deployments
    running = [deployments[name].replica_states.get("RUNNING") for name in POOLS.values()]
    return running == [2, 2, 2] and bool(actors(f"SERVE_DEPLOYMENT_ACTOR::{NAME}::"))


async def until(condition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.5)


async def recovery(twins) -> None:
    await until(whole, RECOVERY_S)
    await asyncio.to_thread(wait_until_healthy, twins.url)


@pytest.fixture(autouse=True)
async def client(twins):
    """Afterwards everything is there twice again."""
    async with httpx.AsyncClient(timeout=120) as made:
        yield made
    await recovery(twins)


def asked(tessera, number: int, **more) -> dict:
    """Question `number`, the same whenever it is asked; every third one is without a picture."""
    content = [] if number % 3 == 2 else [part(picture(number, (336 * (1 + number % 2), 336)))]
    return body(tessera, *content, f"Question {number}?", stream=number % 2 == 1) | more


async def ask_all(client, twins, requests) -> list[httpx.Response]:
    return await asyncio.gather(*(client.post(endpoint(twins), json=request) for request in requests))


async def test_a_conversation_stays_with_its_decoder(client, twins):
    """Which has the tokens of its picture in vLLM's prefix cache; both decoders have conversations."""
    requests = [asked(twins, 3 * i + 6000, stream=False, max_tokens=400, ignore_eos=True) for i in range(8)]
    calls = asyncio.create_task(ask_all(client, twins, requests))
    decoders = serve.get_deployment_handle("LLMPool", NAME)

    async def both_at_work() -> bool:
        return all(found["unfinished"] for found in await decoders.broadcast("stats").results_async())

    while not await both_at_work():
        assert not calls.done()
        await asyncio.sleep(0.1)
    for request, answer in zip(requests, await calls, strict=True):
        said = answer.json()["choices"][0]["message"]["content"]
        turn = [{"role": "assistant", "content": said}, {"role": "user", "content": "And then?"}]
        again = request | {"messages": request["messages"] + turn, "max_tokens": 1}
        usage = (await client.post(endpoint(twins), json=again)).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] >= 144


async def test_a_decoder_that_dies_before_its_answer_is_not_seen(client, twins):
    """Sixteen conversations are more than one decoder gets: some are on the one that dies."""
    requests = [asked(twins, 2 * i, max_tokens=200, ignore_eos=True) for i in range(16)]
    expected = [text_of(answer) for answer in await ask_all(client, twins, requests)]
    calls = asyncio.create_task(ask_all(client, twins, requests))
    await asyncio.sleep(1)
    assert not calls.done()
    kill_one("decoder")
    answers = await calls
    assert [answer.status_code for answer in answers] == [200] * 16
    assert [text_of(answer) for answer in answers] == expected


@pytest.mark.parametrize("kind", ["encoder", STORE])
async def test_what_dies_under_thirty_two_clients_is_not_seen(client, twins, kind):
    requests = [asked(twins, 3 * i + 1000) for i in range(32)]
    calls = asyncio.create_task(ask_all(client, twins, requests))
    await asyncio.sleep(0.5)
    kill_one(kind)
    answers = await calls
    assert [answer.status_code for answer in answers] == [200] * 32
    again = await ask_all(client, twins, requests)
    assert [text_of(answer) for answer in again] == [text_of(answer) for answer in answers]


async def test_a_router_that_dies_takes_only_its_own_requests_along(client, twins):
    kill_one("router")
    answers = await ask_all(client, twins, [asked(twins, 3 * i) for i in range(16)])
    assert [answer.status_code for answer in answers] == [200] * 16


def idle() -> bool:
    """Whether no decoder and no encoder has anything in hand."""
    stats = [
        found
        for pool in ("LLMPool", "EncoderPool")
        for found in serve.get_deployment_handle(pool, NAME).broadcast("stats").results(timeout_s=60)
    ]
    return not any(found.get(what) for found in stats for what in ("unfinished", "queued_tiles"))


async def kill_at_random(twins, rng: random.Random) -> list[str]:
    """Each kind as often as it has to be, in random order and at random times; one of two at a time."""
    kinds = [*POOLS, STORE] * KILLS_OF_A_KIND
    rng.shuffle(kinds)
    for kind in kinds:
        await asyncio.sleep(rng.uniform(0.3, 1) * CHAOS_S / len(kinds))
        if kind == "decoder":  # takes longest to come back
            await until(whole, RECOVERY_S)
        await asyncio.to_thread(kill_one, kind)
    return kinds


async def test_random_deaths_under_load(client, twins):
    rng = random.Random(20)
    questions = range(2000, 2024)
    expected = {}
    for number in questions:
        expected[number] = text_of(await client.post(endpoint(twins), json=asked(twins, number)))
    await until(idle, SETTLE_S)
    bytes_before = bytes_used()
    kills = asyncio.create_task(kill_at_random(twins, rng))
    ends = time.monotonic() + CHAOS_S
    outcomes: Counter[str] = Counter()

    async def one_client(seed: int) -> None:
        own = random.Random(seed)
        while not kills.done() or time.monotonic() < ends:
            number = own.choice(questions)
            try:
                answer = await client.post(endpoint(twins), json=asked(twins, number))
            except httpx.RemoteProtocolError:
                outcomes["cut"] += 1
                continue
            outcomes[outcome(answer, expected[number])] += 1

    await asyncio.gather(*(one_client(seed) for seed in range(CLIENTS)))
    assert len(kills.result()) == 8
    assert not [seen for seen in outcomes if seen.startswith("wrong")], outcomes
    # Serve's proxy breaks off a stream whose Router died: the client's library tells it so.
    assert outcomes["cut"] <= CLIENTS * KILLS_OF_A_KIND, outcomes
    assert outcomes["right"] >= 0.95 * outcomes.total(), outcomes
    await recovery(twins)
    await until(idle, SETTLE_S)
    # What a store keeps is gone with it at most; all its pictures together are small.
    assert bytes_used() <= bytes_before + 10 * 2**20


def outcome(answer: httpx.Response, expected: str) -> str:
    """right, refused, or wrong: a 200 with another text, or a refusal that is not one of ours or of Serve's proxy."""
    if answer.status_code == 200:
        if '"error"' in answer.text:
            return "refused"
        return "right" if text_of(answer) == expected else "wrong"
    # Serve's proxy answers 500, in plain text, for a Router that died with the request.
    of_proxy = answer.status_code == 500 and not answer.headers["content-type"].startswith("application/json")
    return "refused" if of_proxy or answer.status_code in (429, 503) else f"wrong: {answer.status_code}"
