"""The application changes, and goes, under load: nobody who was let in is cut off."""

from __future__ import annotations

import asyncio
import copy
import time

import httpx
import pytest
from ray import serve

from tests.chat import body, endpoint, text_of
from tests.cluster import actors
from tests.e2e.router.conftest import NAME, run_application, wait_until_healthy
from tests.pictures import part, picture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CLIENTS = 4
UPDATE_S = 900


def request(twins, number: int, max_tokens: int = 100) -> dict:
    image = part(picture(number, (336, 336)))
    return body(twins, image, "What?", stream=True, max_tokens=max_tokens, ignore_eos=True)


async def ask(client: httpx.AsyncClient, twins, number: int, **more) -> httpx.Response:
    return await client.post(endpoint(twins), json=request(twins, number, **more))


async def test_an_update_of_settings_loses_no_request(twins):
    """All replicas of all three deployments are replaced, one after the other."""
    before = actors(f"SERVE_REPLICA::{NAME}#")
    assert len(before) == 6
    args = copy.deepcopy(twins.config["applications"][0]["args"])
    args["router"]["max_images"] = 7
    done = asyncio.Event()
    async with httpx.AsyncClient(timeout=120) as client:
        expected = [text_of(await ask(client, twins, number)) for number in range(CLIENTS)]

        async def client_until_done(number: int) -> int:
            answered = 0
            while not done.is_set():
                answer = await ask(client, twins, number)
                assert answer.status_code == 200, answer.text
                assert answer.text.endswith("data: [DONE]\n\n")
                assert text_of(answer) == expected[number]
                answered += 1
            return answered

        clients = [asyncio.create_task(client_until_done(number)) for number in range(CLIENTS)]
        await asyncio.to_thread(run_application, NAME, args)
        deadline = time.monotonic() + UPDATE_S
        while set(actors(f"SERVE_REPLICA::{NAME}#")) & set(before):
            assert time.monotonic() < deadline
            assert not [one for one in clients if one.done()], "a client met something else than its answer"
            await asyncio.sleep(1)
        await asyncio.to_thread(wait_until_healthy, twins.url)
        done.set()
        assert min(await asyncio.gather(*clients)) > 1
        refused = body(twins, *(part(picture(number)) for number in range(8)), "What?")
        assert (await client.post(endpoint(twins), json=refused)).status_code == 400, "the new limit holds"


async def test_streams_finish_while_the_application_goes(twins):
    """The last test with `twins`. Serve's proxy forgets the route at once: whoever comes now is told so by it."""
    async with httpx.AsyncClient(timeout=120) as client:
        calls = [asyncio.create_task(ask(client, twins, 50 + i, max_tokens=1000)) for i in range(CLIENTS)]
        decoders = serve.get_deployment_handle("LLMPool", NAME)
        while sum(found["unfinished"] for found in await decoders.broadcast("stats").results_async()) < CLIENTS:
            await asyncio.sleep(0.1)
        await asyncio.to_thread(serve.delete, NAME, _blocking=False)
        late = []
        while not all(call.done() for call in calls):
            late.append(await ask(client, twins, 60, max_tokens=1))
            await asyncio.sleep(0.2)
        for call in calls:
            answer = await call
            assert answer.status_code == 200
            assert answer.text.endswith("data: [DONE]\n\n")
    assert late
    assert {answer.status_code for answer in late} <= {200, 404, 503}
    assert all(answer.headers["retry-after"] for answer in late if answer.status_code == 503)
