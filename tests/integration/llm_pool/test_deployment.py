"""The deployment's class around a real engine: answers, streams, refusals, cancellation."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from encoder_pool.wire import HandOff
from llm_pool.reply import Reply
from tests.integration.llm_pool.chain import Arrived, Chain, numbered
from tests.pictures import picture, user

QUESTION: dict[str, Any] = {"messages": [user("Say what you can.")], "max_tokens": 8, "temperature": 0}


def picture_question(**more: Any) -> tuple[dict[str, Any], list[Image.Image]]:
    pictures: list[Image.Image] = []
    part_of = numbered(pictures)
    content = ["What is in ", part_of(picture(1)), " and in ", part_of(picture(2, (672, 336))), "?"]
    return QUESTION | {"messages": [user(*content)]} | more, pictures


def error_of(reply: Reply | str) -> dict[str, Any]:
    assert isinstance(reply, Reply)
    assert not reply.stream
    error = json.loads(reply.body)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    return {"status": reply.status, **error}


def events(items: list[Reply | str]) -> list[Any]:
    """The data of a stream's events, [DONE] as text."""
    head, *rest = items
    assert isinstance(head, Reply)
    assert head.status == 200
    assert head.stream
    text = head.body + "".join(str(chunk) for chunk in rest)
    assert text.endswith("\n\n")
    data = [event.removeprefix("data: ") for event in text[:-2].split("\n\n")]
    return [event if event == "[DONE]" else json.loads(event) for event in data]


def eventually(condition: Any, within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def nothing_stays_behind(chain: Chain) -> Any:
    yield
    eventually(lambda: chain.run(chain.decoder.stats()) == {"unfinished": 0})


def test_models_lists_every_served_name(chain: Chain) -> None:
    listed = chain.run(chain.decoder.models())
    assert [card["id"] for card in listed["data"]] == ["tiny", "tiny-alias"]
    for name in ("tiny", "tiny-alias"):
        assert chain.answer(QUESTION | {"model": name})["model"] == "tiny"


def test_the_request_id_is_ours(chain: Chain) -> None:
    answer = chain.answer(QUESTION | {"request_id": "the client's"})
    assert answer["id"] == "chatcmpl-test"


def test_a_stream_says_what_the_whole_answer_says(chain: Chain) -> None:
    body, pictures = picture_question()
    whole = chain.answer(body, pictures)
    body, pictures = picture_question(stream=True, stream_options={"include_usage": True})
    *chunks, usage, done = events(chain.ask(body, pictures))
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == whole["choices"][0]["message"]["content"]
    assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"][0]["finish_reason"]] == ["length"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("change", "status", "param", "code"),
    [
        ({"model": "nobody"}, 404, "model", "model_not_found"),
        ({"messages": [user("word " * 9000)]}, 400, "messages", "context_length_exceeded"),
        ({"messages": 3}, 400, None, 400),
        ({"messages": []}, 400, None, 400),
        ({"max_tokens": -1}, 400, "max_tokens", 400),
        ({"temperature": "hot"}, 400, "temperature", 400),
        ({"logprobs": True, "top_logprobs": 10**6}, 400, None, 400),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}},
            400,
            None,
            400,
        ),
        ({"messages": [user({"type": "image_url", "image_url": {"url": "data:,"}})]}, 400, "image", 400),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_requests_are_refused_before_a_stream_begins(
    chain: Chain, change: dict[str, Any], status: int, param: str | None, code: Any, stream: bool
) -> None:
    [reply] = chain.ask(QUESTION | change | {"stream": stream})
    error = error_of(reply)
    assert (error["status"], error["code"]) == (status, code)
    if param is not None:
        assert error["param"] == param


@pytest.mark.parametrize("fault", ["nan", "row short", "narrow", "grid", "one part too many"])
def test_bad_embeddings_never_reach_the_engine(chain: Chain, caplog: pytest.LogCaptureFixture, fault: str) -> None:
    body, pictures = picture_question()
    hand_off, arrays = chain.run(chain.encode(pictures))
    assert hand_off is not None
    if fault == "nan":
        arrays[1] = arrays[1].copy()
        arrays[1][7, 3] = np.nan
    elif fault == "row short":
        arrays[0] = arrays[0][:-1]
    elif fault == "narrow":
        arrays[0] = np.ascontiguousarray(arrays[0][:, ::2])
    elif fault == "grid":
        hand_off = replace(hand_off, images=(hand_off.images[0], replace(hand_off.images[1], aspect=(1, 3))))
    else:
        body["messages"][0]["content"].append({"type": "image_embeds", "image_embeds": 2})
    with caplog.at_level(logging.ERROR, "ray.serve"):
        [reply] = collect(chain, body, hand_off, arrays)
    assert error_of(reply)["status"] == 500
    assert error_of(reply)["code"] == "bad_embeddings"
    assert len([r for r in caplog.records if "bad_embeddings" in r.getMessage()]) == 1
    # The engine lives, and the good request is answered.
    chain.answer(*picture_question())


def collect(
    chain: Chain, body: dict[str, Any], hand_off: HandOff | None, arrays: list[np.ndarray]
) -> list[Reply | str]:
    async def run() -> list[Reply | str]:
        return [
            item
            async for item in chain.decoder.answer("chat", body, hand_off, "test", [Arrived(array) for array in arrays])
        ]

    return chain.run(run())


def test_other_vision_weights_are_refused_and_logged_once(chain: Chain, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        body, pictures = picture_question()
        hand_off, arrays = chain.run(chain.encode(pictures))
        assert hand_off is not None
        with caplog.at_level(logging.ERROR, "ray.serve"):
            [reply] = collect(chain, body, replace(hand_off, fingerprint="other"), arrays)
        error = error_of(reply)
        assert (error["status"], error["code"]) == (503, "encoder_mismatch")
    assert len([r for r in caplog.records if "encoder_mismatch" in r.getMessage()]) == 1
    # Text needs no encoder.
    chain.answer(QUESTION)


@pytest.mark.parametrize("stream", [False, True])
def test_cancelling_ends_the_request_in_the_engine(chain: Chain, stream: bool) -> None:
    body, pictures = picture_question(max_tokens=4000, ignore_eos=True, stream=stream)
    begun = asyncio.Event()

    async def run() -> None:
        async for _ in await chain.chat(body, pictures):
            begun.set()

    async def cancel() -> None:
        task = asyncio.ensure_future(run())
        if stream:
            await begun.wait()
        else:
            while not (await chain.decoder.stats())["unfinished"]:
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    chain.run(cancel())
    # Checked by the fixture: long before 4000 tokens are through, nothing runs any more.


def test_leaving_a_stream_ends_the_request_in_the_engine(chain: Chain) -> None:
    body, pictures = picture_question(max_tokens=4000, ignore_eos=True, stream=True)

    async def leave() -> None:
        answer = await chain.chat(body, pictures)
        await anext(answer)
        await anext(answer)
        await answer.aclose()

    chain.run(leave())


def test_sixteen_requests_at_once_do_not_mix(chain: Chain) -> None:
    alone = []
    for seed in range(4):
        pictures: list[Image.Image] = []
        body = QUESTION | {"messages": [user("What is in ", numbered(pictures)(picture(seed)), "?")]}
        alone.append(chain.answer(body, pictures)["choices"][0]["message"]["content"])
    assert len(set(alone)) == 4

    async def ask(seed: int) -> str:
        pictures: list[Image.Image] = []
        body = QUESTION | {"messages": [user("What is in ", numbered(pictures)(picture(seed)), "?")]}
        [reply] = [item async for item in await chain.chat(body, pictures)]
        assert isinstance(reply, Reply)
        return json.loads(reply.body)["choices"][0]["message"]["content"]

    async def all_at_once() -> list[str]:
        return await asyncio.gather(*(ask(n % 4) for n in range(16)))

    assert chain.run(all_at_once()) == [alone[n % 4] for n in range(16)]


def test_health_is_the_engines(chain: Chain) -> None:
    chain.run(chain.decoder.check_health())


def test_the_engines_workers_give_memory_back_when_asked(chain: Chain) -> None:
    trimmer = chain.decoder._engine._trimmer
    assert trimmer is not None

    async def trim() -> Any:
        trimmer.trim()
        return await trimmer._trim

    assert chain.run(trim()) == [None], "one worker, which knew what it was asked for"
