"""A stream whose first chunk takes long is kept open by comments, which clients of event streams skip.

Until the first comment an error is a plain answer with its status; after it the status 200 is out, and an error is the
stream's last event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from llm_pool.errors import error_event
from llm_pool.reply import Endpoint
from router.decoders import Answer
from router.errors import ApiError

logger = logging.getLogger("ray.serve")

COMMENT = ": still working\n\n"


async def within(answer: asyncio.Task[Answer], seconds: float) -> bool:
    """Whether `answer` is there after `seconds`; it is cancelled where the caller is."""
    try:
        done, _ = await asyncio.wait([answer], timeout=seconds)
    except asyncio.CancelledError:
        answer.cancel()
        raise
    return bool(done)


class KeptOpen(StreamingResponse):
    """A comment at once and every `every_s` seconds, then the events of `answer`, which its end cancels."""

    def __init__(self, answer: asyncio.Task[Answer], every_s: float, endpoint: Endpoint) -> None:
        super().__init__(_events(answer, every_s, endpoint), media_type="text/event-stream")
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # Here and not in `_events`, which never begins where the client has left before the first comment.
            self._answer.cancel()


async def _events(answer: asyncio.Task[Answer], every_s: float, endpoint: Endpoint) -> AsyncIterator[str]:
    yield COMMENT
    while not await within(answer, every_s):
        yield COMMENT
    try:
        found = answer.result()
    except ApiError as error:
        yield error_event(error.body(), endpoint)
        return
    except Exception as error:
        logger.error("request failed with %s", type(error).__name__, exc_info=error)
        yield error_event(ApiError(500, "internal error").body(), endpoint)
        return
    if not found.head.stream:
        yield error_event(found.head.body, endpoint)
        return
    yield found.head.body
    async for chunk in found.rest:
        yield chunk
