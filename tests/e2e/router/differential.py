"""What two servers answered to one request, and which of the known differences it is."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.e2e.router.differential_requests import Case


@dataclass(frozen=True)
class Answer:
    """What a client can tell an answer by. error: (type, param) of one that is not 200."""

    status: int
    error: tuple[str, str | None] | None = None
    texts: dict[int, str] = field(default_factory=dict)
    finish_reasons: dict[int, str] = field(default_factory=dict)
    usage: tuple[int, ...] | None = None
    more: str = ""


def ask(url: str, case: Case) -> Answer:
    answer = httpx.post(url + case.path, json=case.body, timeout=300)
    if answer.status_code != 200:
        error = answer.json()["error"]
        return Answer(answer.status_code, (error["type"], error["param"]))
    if answer.headers["content-type"].startswith("text/event-stream"):
        data = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
        done = "done" if data[-1] == "[DONE]" else "no done"
        return _of_stream([json.loads(one) for one in data if one != "[DONE]"], done)
    return _of_whole(answer.json())


def _usage(usage: dict[str, Any] | None) -> tuple[int, ...] | None:
    """Tokens of the prompt and of the answer."""
    if not usage:
        return None
    sides = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
    return tuple(usage.get(chat, usage.get(responses, 0)) for chat, responses in sides)


def _of_whole(body: dict[str, Any]) -> Answer:
    if body.get("object") == "response":
        return Answer(200, texts={0: _outputs(body)}, finish_reasons={0: body["status"]}, usage=_usage(body["usage"]))
    choices = body.get("choices")
    if choices is None:  # tokens, or what they say
        return Answer(200, more=json.dumps(body, sort_keys=True))
    return Answer(
        200,
        texts={c["index"]: c["text"] if "text" in c else _said(c["message"]) for c in choices},
        finish_reasons={c["index"]: c["finish_reason"] for c in choices},
        usage=_usage(body["usage"]),
        more=json.dumps([_tokens(c) for c in choices]),
    )


def _of_stream(events: list[dict[str, Any]], end: str) -> Answer:
    if "type" in events[0]:
        last = events[-1]["response"]
        kinds = [event["type"] for event in events if event["type"] != "response.output_text.delta"]
        return Answer(200, texts={0: _outputs(last)}, usage=_usage(last["usage"]), more=f"{end} {kinds}")
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    for event in events:
        if "error" in event:
            return Answer(200, (event["error"]["type"], event["error"]["param"]), more="an event in the stream")
        for choice in event["choices"]:
            said = choice["text"] if "text" in choice else _said(choice["delta"])
            texts[choice["index"]] = texts.get(choice["index"], "") + said
            if choice.get("finish_reason"):
                reasons[choice["index"]] = choice["finish_reason"]
    usages = [usage for event in events if (usage := _usage(event.get("usage")))]
    return Answer(200, texts=texts, finish_reasons=reasons, usage=usages[-1] if usages else None, more=end)


def _said(message: dict[str, Any]) -> str:
    calls = [(c["function"].get("name"), c["function"].get("arguments")) for c in message.get("tool_calls") or []]
    return (message.get("content") or "") + "".join(f"{name or ''}{arguments or ''}" for name, arguments in calls)


def _tokens(choice: dict[str, Any]) -> list[str] | None:
    logprobs = choice.get("logprobs") or {}
    return logprobs.get("tokens") or [token["token"] for token in logprobs.get("content") or []]


def _outputs(response: dict[str, Any]) -> str:
    texts = [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
    calls = [item["name"] + item["arguments"] for item in response["output"] if item["type"] == "function_call"]
    return "".join(texts + calls)
