"""A decoder that falls silent within a stream."""

from __future__ import annotations

import json
import signal

import httpx
import pytest

from tests.chat import body, endpoint, post
from tests.cluster import engine_processes


@pytest.mark.slow
def test_a_stream_without_a_chunk_ends_with_an_error(strict):
    request = body(strict, "Go on.", stream=True, max_tokens=4000, ignore_eos=True)
    [engine] = engine_processes("strict")
    try:
        with httpx.stream("POST", endpoint(strict), json=request, timeout=60) as answer:
            lines = (line for line in answer.iter_lines() if line)
            assert "chat.completion.chunk" in next(lines)
            engine.send_signal(signal.SIGSTOP)
            *_, last = lines
    finally:
        engine.send_signal(signal.SIGCONT)
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "decoder_failed"
    assert post(strict, "Hello?").status_code == 200
