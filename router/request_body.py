"""What a client sent, read and checked before anything is done for it."""

from __future__ import annotations

import json
import uuid
from typing import Any

from fastapi import Request
from pydantic import ValidationError

from llm_pool.protocol import ChatCompletionRequest, VLLMValidationError
from router.errors import ApiError, bad_request, from_validation

MAX_REQUEST_ID = 128
# vLLM's request model takes any word for a role and leaves it to the chat template, which may lose the message.
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def request_id_of(request: Request) -> str:
    """The client's `x-request-id`; Serve's proxy makes one where it is absent, and echoes it."""
    return request.headers.get("x-request-id", "")[:MAX_REQUEST_ID] or uuid.uuid4().hex


async def read_body(request: Request, limit: int) -> dict[str, Any]:
    """The JSON object that a request carries. Raises ApiError: 413 over `limit` bytes, 400 for anything else."""
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise bad_request("the body must be application/json", None)
    body = bytearray()
    declared = request.headers.get("content-length", "0")
    too_large = ApiError(413, f"the body has more than {limit} bytes", code="request_too_large")
    if declared.isdecimal() and int(declared) > limit:
        raise too_large
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise too_large
    try:
        parsed = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        # UnicodeDecodeError is a ValueError too.
        raise bad_request("the body is not valid JSON", None) from None
    if not isinstance(parsed, dict):
        raise bad_request("the body must be a JSON object", None)
    return parsed


def _refuse_constant(name: str) -> float:
    raise ValueError(name)  # NaN and Infinity are no JSON


def check_chat_request(body: dict[str, Any]) -> None:
    """Validates with vLLM's own request model. Raises ApiError 400, naming the field."""
    try:
        ChatCompletionRequest.model_validate(body)
    except ValidationError as error:
        raise from_validation(error) from None
    except VLLMValidationError as error:
        raise bad_request(str(error.args[0]), error.parameter) from None
    except (ValueError, TypeError, RecursionError):
        raise bad_request("the request is malformed", None) from None
    for index, message in enumerate(body["messages"]):
        if message.get("role") not in ROLES:
            path = f"messages[{index}].role"
            raise bad_request(f"{path}: must be one of {', '.join(ROLES)}", path)
