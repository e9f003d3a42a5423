"""Every image and request of tests/cases against a running application, held against what the manifest expects."""

from __future__ import annotations

import base64
import json
import time

import httpx
import pytest

from tests.application import ROOT

CASES = ROOT / "tests" / "cases"
MANIFEST = json.loads((CASES / "manifest.json").read_text())
IMAGES = [case for case in MANIFEST if case["send"] == "image"]
REQUESTS = [case for case in MANIFEST if case["send"] == "request"]


def post(tessera, content: bytes) -> httpx.Response:
    headers = {"content-type": "application/json"}
    return httpx.post(f"{tessera.url}/v1/chat/completions", content=content, headers=headers, timeout=60)


def chat(tessera, *content: dict) -> httpx.Response:
    body = {"model": tessera.model, "messages": [{"role": "user", "content": list(content)}], "max_tokens": 1}
    return post(tessera, json.dumps(body).encode())


@pytest.fixture(scope="module")
def text_tokens(tessera) -> int:
    return chat(tessera, {"type": "text", "text": "?"}).json()["usage"]["prompt_tokens"]


def check_error(answer: httpx.Response) -> None:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert "Traceback" not in answer.text
    assert len(answer.text) < 2000, "an error does not repeat what the client sent"


@pytest.mark.parametrize("case", IMAGES, ids=lambda case: case["file"])
def test_image(tessera, text_tokens, case):
    data = base64.b64encode((CASES / case["file"]).read_bytes()).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    answer = chat(tessera, image, {"type": "text", "text": "?"})
    assert answer.status_code == case["expect"]["status"], answer.text
    if answer.status_code == 200:
        assert answer.json()["usage"]["prompt_tokens"] - text_tokens == case["expect"]["image_prompt_tokens"]
    else:
        check_error(answer)
        assert answer.json()["error"]["param"] == "messages[0].content[0]"


@pytest.mark.parametrize("case", REQUESTS, ids=lambda case: case["file"])
def test_request(tessera, case):
    content = (CASES / case["file"]).read_bytes().replace(b'"MODEL"', json.dumps(tessera.model).encode())
    expect = case["expect"]
    started = time.monotonic()
    answer = post(tessera, content)
    assert time.monotonic() - started < expect.get("max_seconds", 60)
    assert answer.status_code in expect.get("status_any", [expect.get("status")]), answer.text
    if answer.status_code != 200:
        check_error(answer)
        assert answer.headers["content-type"].startswith("application/json")
    for words in expect.get("must_not_contain", []):
        assert words not in answer.text
    if expect.get("ends_with"):
        assert answer.text.rstrip().endswith(expect["ends_with"])
    if "images_if_200" in expect and answer.status_code == 200:
        assert answer.json()["usage"]["prompt_tokens"] > 147 * expect["images_if_200"]
    if answer.headers["content-type"].startswith("text/event-stream"):
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        choices = [choice for event in events for choice in event["choices"]]
        assert len([choice for choice in choices if choice["finish_reason"]]) == len({c["index"] for c in choices})
        usage = [event for event in events if event.get("usage")]
        assert bool(usage) != bool(expect.get("no_usage_chunk"))
        if usage:
            assert usage[-1] is events[-1]
            assert usage[-1]["choices"] == []
