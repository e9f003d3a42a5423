"""PrefixRouter's choices, on an object made without Serve's machinery around it."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest
from ray.serve._private.common import DeploymentID
from ray.serve.request_router import ReplicaID

from encoder_pool.wire import HandOff, ImageShard
from router.decoder_router import FREE_LOAD, PrefixRouter, beginning_of

REPLICAS = [SimpleNamespace(replica_id=ReplicaID(name, DeploymentID("LLMPool"))) for name in "abcd"]


@pytest.fixture
def router():
    made = object.__new__(PrefixRouter)
    made.initialize_state()
    return made


def user(*content) -> dict:
    parts = [part if isinstance(part, dict) else {"type": "text", "text": part} for part in content]
    return {"role": "user", "content": parts}


def picture(index: int) -> dict:
    return {"type": "image_embeds", "image_embeds": index}


def hand_off(*hashes: str) -> HandOff:
    return HandOff("bfloat16", "f", tuple(ImageShard(name, 1, (1, 1)) for name in hashes))


def call(number: int, *messages, method: str = "answer") -> SimpleNamespace:
    return SimpleNamespace(
        metadata=SimpleNamespace(internal_request_id=str(number), call_method=method),
        args=["chat", {"messages": list(messages)}, None],
        future=asyncio.Future(),
        routing_context=SimpleNamespace(should_backoff=False),
    )


async def choose(router, request, replicas=REPLICAS) -> str:
    return (await router.choose_replicas(replicas, request))[0][0].replica_id.unique_id


async def test_a_conversation_stays_where_it_began(router):
    first = user("Tell me about whales.")
    home = await choose(router, call(0, first))
    longer = [first, {"role": "assistant", "content": "They are large."}, user("How large?")]
    assert await choose(router, call(1, *longer)) == home
    assert await choose(router, call(2, *longer), REPLICAS[::-1]) == home


async def test_conversations_are_spread(router):
    chosen = Counter([await choose(router, call(i, user(f"Question {i}"))) for i in range(400)])
    assert len(chosen) == 4
    assert max(chosen.values()) <= 1.25 * 100 + 1


async def test_a_decoder_that_has_too_much_to_do_is_passed_by(router):
    same = user("What everybody asks")
    chosen = Counter([await choose(router, call(i, same)) for i in range(4 * FREE_LOAD)])
    assert max(chosen.values()) <= 1.25 * FREE_LOAD
    assert len(chosen) == 4


async def test_it_comes_back_once_the_decoder_has_less_to_do(router):
    same = user("What everybody asks")
    home = await choose(router, call(0, same))
    for i in range(1, FREE_LOAD):
        assert await choose(router, call(i, same)) == home
    assert await choose(router, call(FREE_LOAD, same)) != home
    for i in range(FREE_LOAD + 1):
        router.on_request_completed(None, str(i))
    assert await choose(router, call(FREE_LOAD + 1, same)) == home


async def test_few_conversations_move_when_a_decoder_goes(router):
    messages = [user(f"Question {i}") for i in range(20)]
    before = [await choose(router, call(i, message)) for i, message in enumerate(messages)]
    for i in range(20):
        router.on_request_completed(None, str(i))
    after = [await choose(router, call(i, message), REPLICAS[:3]) for i, message in enumerate(messages)]
    assert "d" in before
    assert all(a == b for a, b in zip(after, before, strict=True) if b != "d")


async def test_other_calls_go_where_least_is_to_do(router):
    home = await choose(router, call(0, user("hi")))
    assert await choose(router, call(1, method="models")) != home
    assert len(await router.choose_replicas(REPLICAS)) == 4
    assert await router.choose_replicas([], call(2, user("hi"))) == []


def test_a_beginning_ends_with_the_first_picture():
    system = {"role": "system", "content": "Be brief."}
    one = beginning_of({"messages": [system, user(picture(0), "What?")]}, hand_off("x"))
    assert one == beginning_of({"messages": [system, user(picture(0), "Who?", picture(1))]}, hand_off("x", "y"))
    assert one != beginning_of({"messages": [system, user(picture(0), "What?")]}, hand_off("y"))
    assert one != beginning_of({"messages": [user(picture(0), "What?")]}, hand_off("x"))


def test_a_picture_in_a_later_turn_changes_no_beginning():
    first = [user("Hello"), {"role": "assistant", "content": "Hello."}]
    alone = beginning_of({"messages": first[:1]}, None)
    assert alone == beginning_of({"messages": [*first, user(picture(0), "What?")]}, hand_off("x"))
    assert alone != beginning_of({"messages": first[:1], "tools": [{"type": "function"}]}, None)


def test_responses_and_completions_have_beginnings_too():
    def asked(*parts):
        return {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}, *parts]}]}

    image = {"type": "input_image", "image_url": "0", "detail": "auto"}
    one = beginning_of(asked(image), hand_off("x"))
    assert one == beginning_of(asked(image) | {"temperature": 1}, hand_off("x"))
    assert one != beginning_of(asked(image), hand_off("y"))
    assert one != beginning_of(asked(image) | {"instructions": "Be brief."}, hand_off("x"))
    assert beginning_of({"prompt": "a" * 2000}, None) == beginning_of({"prompt": "a" * 1999 + "b"}, None)
    assert beginning_of({"prompt": [1, 2]}, None) != beginning_of({"prompt": [1, 3]}, None)
