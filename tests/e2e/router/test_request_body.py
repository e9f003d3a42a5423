"""Bodies over HTTP that are too large, or do not come."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from PIL import Image

from tests.chat import body, endpoint
from tests.pictures import part

MEGABYTE = b" " * 2**20
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(("pictures", "megabytes"), [(1, 10), (4, 40)])
def test_ten_and_forty_megabytes_are_read_whatever_stands_last(tessera, pictures, megabytes):
    noise = part(Image.effect_noise((1600, 1600), 90).convert("RGB"), "BMP")
    request = body(tessera, *[noise] * pictures, "What?")
    content = json.dumps({"messages": request["messages"], "max_tokens": 2, "model": request["model"]})
    assert len(content) > megabytes * 10**6
    answer = httpx.post(endpoint(tessera), content=content, headers=JSON, timeout=120)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("field", ["stop", "bad_words"])
def test_half_a_character_never_reaches_the_engine(tessera, field):
    request = body(tessera, "What?") | {field: ["\ud800"]}
    answer = httpx.post(endpoint(tessera), content=json.dumps(request), headers=JSON, timeout=60)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, f"{field}[0]")


@pytest.mark.parametrize("declared", [True, False], ids=["with its length", "in chunks"])
def test_two_hundred_megabytes_are_refused(tessera, declared):
    def content() -> Iterator[bytes]:
        for _ in range(200):
            yield MEGABYTE

    headers = JSON | ({"content-length": str(200 * len(MEGABYTE))} if declared else {})
    answer = httpx.post(endpoint(tessera), content=content(), headers=headers, timeout=120)
    assert answer.status_code == 413
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert answer.json()["error"]["code"] == "request_too_large"


@pytest.mark.slow
def test_a_body_that_does_not_come(strict):
    url = urlsplit(endpoint(strict))
    started = time.monotonic()
    with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
        headers = "Host: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        connection.sendall(f"POST {url.path} HTTP/1.1\r\n{headers}{{".encode())
        answer = b""
        while not answer.endswith(b"}}"):
            more = connection.recv(2**16)
            assert more, answer
            answer += more
    answer = answer.decode()
    assert answer.startswith("HTTP/1.1 408 ")
    assert '"code":"request_timeout"' in answer.replace(": ", ":")
    assert 2 <= time.monotonic() - started < 10
