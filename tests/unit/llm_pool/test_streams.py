"""vLLM's streams as text."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from pydantic import BaseModel
from vllm.exceptions import GenerationError

from llm_pool.streams import StreamError, texts, until_first_token


class Event(BaseModel):
    type: str


async def stream(*events: Any) -> AsyncGenerator[Any, None]:
    for event in events:
        yield event


async def test_events_with_a_type_carry_it() -> None:
    assert [text async for text in texts(stream(Event(type="response.created"), "data: {}\n\n"))] == [
        'event: response.created\ndata: {"type":"response.created"}\n\n',
        "data: {}\n\n",
    ]


async def test_an_error_ends_the_stream_without_done() -> None:
    event = 'data: {"error": {"message": "broken", "type": "InternalServerError", "param": null, "code": 500}}\n\n'
    events = texts(stream("data: {}\n\n", event, "data: [DONE]\n\n"))
    assert await anext(events) == "data: {}\n\n"
    with pytest.raises(StreamError, match="broken") as caught:
        await anext(events)
    assert caught.value.info.code == 500
    assert [text async for text in events] == []


async def test_vllms_stumble_over_its_own_error_is_a_failed_generation() -> None:
    async def stumbling() -> AsyncGenerator[Any, None]:
        yield Event(type="response.created")
        Event.model_validate({})

    events = texts(stumbling())
    await anext(events)
    with pytest.raises(GenerationError):
        await anext(events)


async def test_an_answer_begins_with_its_first_token() -> None:
    names = ["response.created", "response.in_progress", "response.output_item.added", "response.completed"]
    events = texts(stream(*(Event(type=name) for name in names)))
    begun = await until_first_token(events)
    assert [line for line in begun.splitlines() if line.startswith("event:")] == [f"event: {n}" for n in names[:3]]
    assert await until_first_token(texts(stream("data: 1\n\n", "data: 2\n\n"))) == "data: 1\n\n"
