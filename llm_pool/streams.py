"""The streams of vLLM's services as text, from the first token on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from pydantic import ValidationError
from vllm.entrypoints.serve.engine.protocol import ErrorInfo, ErrorResponse
from vllm.exceptions import GenerationError

ERROR_EVENT = 'data: {"error":'
# Events of /v1/responses that vLLM sends before it has begun to generate.
PRELIMINARY = ("event: response.created\n", "event: response.in_progress\n")


class StreamError(Exception):
    """vLLM reported an error as an event of the stream."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


async def texts(events: AsyncGenerator[Any, None]) -> AsyncGenerator[str, None]:
    """Every event as it goes over the wire. Raises StreamError, and what vLLM raises.

    vLLM goes on to [DONE] after an error, which would make a failure look like an answer: nothing follows here.
    """
    async with aclosing(events):
        try:
            async for event in events:
                if not isinstance(event, str):
                    yield f"event: {event.type}\ndata: {event.model_dump_json(by_alias=True)}\n\n"
                elif event.startswith(ERROR_EVENT):
                    raise StreamError(ErrorResponse.model_validate_json(event.removeprefix("data:")).error)
                else:
                    yield event
        except ValidationError as error:
            # vLLM has no typed event for a failed generation, and trips over what it makes instead.
            raise GenerationError from error


async def until_first_token(events: AsyncGenerator[str, None]) -> str:
    """The text up to the first event that holds an answer's beginning. Raises what `events` raises."""
    text = await anext(events)
    while text.startswith(PRELIMINARY):
        following = await anext(events)
        text += following
        if not following.startswith(PRELIMINARY):
            break
    return text
