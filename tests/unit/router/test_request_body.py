import asyncio
import json

import pytest
from starlette.requests import Request

from router.errors import ApiError
from router.request_body import read_body, request_id_of

HELLO = {"messages": [{"role": "user", "content": "hi"}]}


def request(body: bytes, chunk: int = 7, **headers: str) -> Request:
    pieces = [body[i : i + chunk] for i in range(0, len(body), chunk)] or [b""]

    async def receive():
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": raw}, receive)


async def refusal(body: bytes, limit: int = 1000, **headers: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await read_body(request(body, **headers), limit, 5)
    return caught.value


async def test_a_body_in_pieces():
    assert await read_body(request(json.dumps(HELLO).encode()), 1000, 5) == HELLO
    assert await read_body(request(b"{}", content_type='Application/JSON; charset="UTF-8"'), 1000, 5) == {}


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"7", b"\xff\xfe{}", b'{"temperature": NaN}', b'{"n": Infinity}', b"[" * 100_000],
)
async def test_what_is_no_json_object(body):
    assert (await refusal(body, limit=10**6)).status == 400


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (r'{"stop": "\ud800"}', "stop"),
        (r'{"bad_words": ["fine", "\uDFFF!"]}', "bad_words[1]"),
        (r'{"messages": [{"content": [{"text": "\ude00\ud83d"}]}]}', "messages[0].content[0].text"),
        (r'{"metadata": {"\ud800": 1}}', "metadata"),
        (r'{"\ud800": 1}', None),
        (r'{"\ud800": {"a": "\ud800"}}', None),
    ],
)
async def test_half_a_character_is_refused_where_it_stands(body, param):
    refused = await refusal(body.encode())
    assert (refused.status, refused.param) == (400, param)


async def test_whole_characters_may_be_escaped():
    assert await read_body(request(rb'{"stop": "\ud83d\ude00", "user": "\\ud800"}'), 1000, 5) == {
        "stop": "\N{GRINNING FACE}",
        "user": r"\ud800",
    }
    assert await read_body(request(b"\xef\xbb\xbf{}"), 1000, 5) == {}


async def test_bytes_that_are_no_utf_8():
    for body in (b'{"stop": "\xed\xa0\x80"}', '{"stop": "a"}'.encode("utf-16")):
        assert (await refusal(body)).status == 400


async def test_another_media_type():
    for content_type in ("text/plain", "application/json; charset=latin-1", "application/x-www-form-urlencoded", ""):
        assert (await refusal(b"{}", content_type=content_type)).status == 400


async def test_the_limit_holds_for_what_is_declared_and_for_what_comes():
    assert (await refusal(b"{}", content_length="1001")).status == 413
    assert (await refusal(b"x" * 1001)).status == 413


def test_the_request_id_is_the_clients_or_new():
    assert request_id_of(request(b"", x_request_id="mine")) == "mine"
    assert len({request_id_of(request(b"")) for _ in range(3)}) == 3


async def test_a_body_that_does_not_come():
    async def receive():
        await asyncio.sleep(60)

    with pytest.raises(ApiError) as caught:
        await read_body(Request({"type": "http", "headers": []}, receive), 1000, 0.01)
    assert (caught.value.status, caught.value.code) == (408, "request_timeout")
