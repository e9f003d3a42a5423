"""Chat requests of the tests to a running application, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.application import Tessera
from tests.pictures import user


def body(tessera: Tessera, *content: dict[str, Any] | str, **more: Any) -> dict[str, Any]:
    """A request of one user's message, whose answer is short and always the same."""
    return {"model": tessera.model, "messages": [user(*content)], "max_tokens": 4, "temperature": 0} | more


def endpoint(tessera: Tessera) -> str:
    return f"{tessera.url}/v1/chat/completions"


def post(tessera: Tessera, *content: dict[str, Any] | str, **more: Any) -> httpx.Response:
    return httpx.post(endpoint(tessera), json=body(tessera, *content, **more), timeout=120)


def text_of(answer: httpx.Response) -> str:
    """The text of an answer, whole or streamed."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return str(answer.json()["choices"][0]["message"]["content"])
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
