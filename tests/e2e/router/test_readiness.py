"""What the world is told while an application starts."""

import asyncio
import time

import httpx
import pytest
from ray import serve

from llm_pool.deployment import LLMPool
from router.app import build_app
from tests.application import START_S, default_config, look
from tests.cluster import actors


def test_while_the_pools_load_health_says_what_is_missing(tessera):
    ours = [answer for answer in tessera.starting if answer.status_code == 503]
    assert ours, "the Router answers while the pools still load"
    for answer in ours:
        error = answer.json()["error"]
        assert error["code"] == "starting"
        assert error["message"].startswith("starting: waiting for")
        assert answer.headers["retry-after"]
    assert any("LLMPool" in answer.text for answer in ours)


def test_then_it_is_ready(tessera):
    assert httpx.get(f"{tessera.url}/health").json() == {"status": "ok"}


LOADING_S = 120


class LateDecoder(LLMPool):
    """Takes as long to load as a large model."""

    async def __init__(self, model, llm) -> None:
        await asyncio.sleep(LOADING_S)
        await super().__init__(model, llm)


@pytest.fixture
def late(three_raylets, tiny_checkpoint, monkeypatch):
    """The URL of an application whose decoder has just begun to load."""
    monkeypatch.setattr("llm_pool.deployment.LLMPool", LateDecoder)
    args = default_config(tiny_checkpoint, three_raylets.http_port)["applications"][0]["args"]
    args["router"]["in_flight_bytes"] = 100 * 2**20
    serve.api._run(build_app(args), name="late", route_prefix="/late", _blocking=False)
    yield f"http://127.0.0.1:{three_raylets.http_port}/late"
    serve.delete("late")


@pytest.mark.slow
def test_a_decoder_that_loads_for_minutes_is_waited_for(late):
    answers, replicas = [], set()
    started = time.monotonic()
    while [answer.status_code for answer in answers[-2:]] != [200, 200]:
        assert time.monotonic() - started < LOADING_S + START_S
        time.sleep(1)
        found = [look(f"{late}{path}") for path in ("/health", "/v1/models")]
        answers += [answer for answer in found if answer is not None]
        replicas |= set(actors("SERVE_REPLICA::late#LLMPool#"))
    assert time.monotonic() - started > LOADING_S
    assert len(replicas) == 1, "it was not started again and again"
    assert serve.status().applications["late"].status == "RUNNING"
    # Serve's proxy answers 404 as long as it does not know the application.
    ours = [answer for answer in answers if answer.status_code not in (200, 404)]
    assert {(answer.status_code, answer.json()["error"]["code"]) for answer in ours} == {(503, "starting")}
