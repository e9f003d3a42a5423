"""Errors that a client sees, in OpenAI's shape: {"error": {"message", "type", "param", "code"}}.

`type` follows vLLM's names, `code` is a word where a client may want to tell the case apart, else the HTTP status.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import ValidationError

TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    408: "RequestTimeoutError",
    413: "RequestTooLargeError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
}


class ApiError(Exception):
    """Ends a request with `status`; `message` is written for the client and holds none of its data."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        # What an exception is made again from when it comes from another process, beside its attributes.
        super().__init__(status, message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return self.message

    def body(self) -> str:
        """The JSON text of the answer."""
        error = {
            "message": self.message,
            "type": TYPES.get(self.status, "InternalServerError"),
            "param": self.param,
            "code": self.code or self.status,
        }
        return json.dumps({"error": error})

    def headers(self) -> dict[str, str]:
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return headers


def bad_request(message: str, param: str | None, code: str | None = None) -> ApiError:
    """400: the client's request cannot be served as it stands."""
    return ApiError(400, message, param=param, code=code)


def unavailable(message: str, code: str, retry_after_s: int = 1) -> ApiError:
    """503: try again later."""
    return ApiError(503, message, code=code, retry_after_s=retry_after_s)


def path_of(location: tuple[str | int, ...]) -> str:
    """("messages", 0, "content", 1) -> "messages[0].content[1]"."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def from_validation(error: ValidationError, body: Any) -> ApiError:
    """What pydantic refused in `body`, named by its path, without the value that the client sent.

    Of the members of a union, each of which says what it would have taken, the one that came furthest is quoted.
    """
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    found = [(_location(one["loc"], body, missing=one["type"] == "missing"), one) for one in errors]
    # A member without the object's keys, or with another `type` or `role`, is not the one that was meant.
    location, quoted = max(
        (one for one in found if one[0][:1] == found[0][0][:1]),
        key=lambda one: (len(one[0]), one[1]["type"] not in ("missing", "literal_error")),
    )
    message = _INSTANCE_OF.sub("an object", quoted["msg"].removeprefix("Value error, "))
    param = path_of(location) or None
    return bad_request(f"{param}: {message}" if param else message, param)


# pydantic's words for a JSON object.
_INSTANCE_OF = re.compile(r"a (valid )?dictionary or (instance of \w+|object to extract fields from)")


def _location(steps: tuple[str | int, ...], body: Any, *, missing: bool) -> tuple[str | int, ...]:
    """The steps that lead through `body`; pydantic puts the names of types and validators between them."""
    location = []
    for index, step in enumerate(steps):
        if (isinstance(body, dict) and step in body) or (isinstance(body, list) and isinstance(step, int)):
            location.append(step)
            body = body[step]  # type: ignore[index]
        elif missing and index == len(steps) - 1:
            location.append(step)
    return tuple(location)
