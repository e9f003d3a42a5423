import asyncio
import json

import pytest
from starlette.requests import ClientDisconnect

from llm_pool.reply import Reply
from router.decoders import Answer
from router.errors import unavailable
from router.heartbeat import COMMENT, KeptOpen, within

BEAT_S = 0.02


async def rest():
    yield "data: 2\n\n"


async def late(result, seconds: float = 2.5 * BEAT_S):
    await asyncio.sleep(seconds)
    if isinstance(result, Exception):
        raise result
    return result


def start(result, **more) -> asyncio.Task:
    return asyncio.get_running_loop().create_task(late(result, **more))


async def respond(task, send) -> None:
    """As the server does it, to a client that sends nothing more."""
    await KeptOpen(task, BEAT_S, "chat")({"type": "http", "asgi": {"spec_version": "2.4"}}, asyncio.Event().wait, send)


async def events(task) -> list[str]:
    sent = []

    async def send(message) -> None:
        sent.append(message.get("body", b"").decode())

    await respond(task, send)
    return [event for event in sent if event]


async def test_comments_until_the_first_chunk():
    found = await events(start(Answer(Reply(200, True, "data: 1\n\n"), rest())))
    assert found[-2:] == ["data: 1\n\n", "data: 2\n\n"]
    assert found[:-2] == [COMMENT] * len(found[:-2])
    assert len(found) >= 4


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (unavailable("gone", "encoder_timeout"), "encoder_timeout"),
        (ZeroDivisionError("secret"), 500),
        (
            Answer(Reply(400, False, '{"error": {"code": "context_length_exceeded"}}'), rest()),
            "context_length_exceeded",
        ),
    ],
)
async def test_an_error_is_the_last_event(result, code):
    found = await events(start(result))
    assert found[0] == COMMENT
    assert json.loads(found[-1].removeprefix("data: "))["error"]["code"] == code
    assert "DONE" not in "".join(found)
    assert "secret" not in "".join(found)


@pytest.mark.parametrize("message", range(4), ids=["headers", "first comment", "second comment", "third comment"])
@pytest.mark.parametrize("kind", [OSError, asyncio.CancelledError])
async def test_who_leaves_while_waiting_cancels_the_answer(message, kind):
    """The server says so by either exception, whatever it is sending."""
    task = start(None, seconds=10)
    sent = 0

    async def send(_) -> None:
        nonlocal sent
        if sent == message:
            raise kind
        sent += 1

    with pytest.raises((ClientDisconnect, asyncio.CancelledError)):
        await respond(task, send)
    await asyncio.wait([task], timeout=1)
    assert task.cancelled()


async def test_who_leaves_before_the_stream_begins_cancels_the_answer():
    task = start(None, seconds=10)
    waiting = asyncio.create_task(within(task, 5))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([task, waiting], timeout=1)
    assert task.cancelled()


async def test_within():
    assert await within(start(None, seconds=0), 1)
    task = start(None, seconds=1)
    assert not await within(task, 0.01)
    assert not task.done()
    task.cancel()
