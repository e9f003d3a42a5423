"""What a client sent: its request id, and the JSON of its body."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from email.message import Message
from typing import Any

from fastapi import Request

from router.errors import ApiError, bad_request

MAX_REQUEST_ID = 128
# Half of a pair of escapes that stand for one character, or a whole pair.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def request_id_of(request: Request) -> str:
    """The client's `x-request-id`; Serve's proxy makes one where it is absent, and echoes it."""
    return request.headers.get("x-request-id", "")[:MAX_REQUEST_ID] or uuid.uuid4().hex


async def read_body(request: Request, limit: int, timeout_s: float) -> dict[str, Any]:
    """The JSON object that a request carries.

    Raises ApiError: 413 over `limit` bytes, 408 where it did not come within `timeout_s`, 400 for anything else.
    """
    content_type = Message()
    content_type["content-type"] = request.headers.get("content-type", "application/json")
    charset = content_type.get_content_charset("utf-8")
    if content_type.get_content_type() != "application/json" or charset not in ("utf-8", "us-ascii"):
        raise bad_request("the body must be application/json in UTF-8", None)
    body = bytearray()
    declared = request.headers.get("content-length", "0")
    too_large = ApiError(413, f"the body has more than {limit} bytes", code="request_too_large")
    if declared.isdecimal() and int(declared) > limit:
        raise too_large
    try:
        async with asyncio.timeout(timeout_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise too_large
    except TimeoutError:
        raise ApiError(408, f"the body did not arrive within {timeout_s:g} s", code="request_timeout") from None
    try:
        # Bytes would let `json` guess the encoding, and take half characters.
        text = body.decode("utf-8-sig")
        parsed = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        # UnicodeDecodeError is a ValueError too.
        raise bad_request("the body is not valid JSON", None) from None
    if not isinstance(parsed, dict):
        raise bad_request("the body must be a JSON object", None)
    if _SURROGATE.search(text):
        _refuse_half_characters(parsed)
    return parsed


def _refuse_half_characters(body: dict[str, Any]) -> None:
    """Raises ApiError 400 for a string with half a surrogate pair: JSON can write it, but no tokenizer takes it."""
    waiting: list[tuple[str, Any]] = [("", body)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{path}.{key}" if path else key, item) for key, item in value.items()]
            # Looked at before what they name, so that no path holds half a character.
            waiting += [(path, key) for key in value]
        elif isinstance(value, list):
            waiting += [(f"{path}[{index}]", item) for index, item in enumerate(value)]
        elif isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise bad_request(
                    f"{path or 'the body'}: half a surrogate pair is no character", path or None
                ) from None


def _refuse_constant(name: str) -> float:
    raise ValueError(name)  # NaN and Infinity are no JSON
