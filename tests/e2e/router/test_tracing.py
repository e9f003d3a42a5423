"""One request's spans and log lines, over all three deployments."""

from __future__ import annotations

import os
import time
from pathlib import Path

import httpx
import pytest

from benchmarks.spans import Span, new_trace, read_trace
from tests.pictures import part, picture, user

# Of each room, in the order in which they begin. The rooms work at the same time.
ROUTER = "embed fetch cut encode encode_call first_chunk".split()
ENCODER = "queue encode store".split()
DECODER = "arrive intake rebuild prefill".split()


@pytest.fixture(scope="module")
def serve_logs(three_raylets) -> Path:
    return Path(os.environ["RAY_TMPDIR"]) / "ray" / "session_latest" / "logs" / "serve"


# With several Routers, an actor of theirs calls the encoder.
SHARED_ROUTER = "embed fetch cut encode shared_encode encode_call first_chunk".split()


def ask(tessera, headers: dict[str, str], seed: int) -> None:
    body = {"model": tessera.model, "messages": [user(part(picture(seed)), "What?")], "max_tokens": 2, "stream": True}
    answer = httpx.post(f"{tessera.url}/v1/chat/completions", json=body, headers=headers, timeout=60)
    assert answer.status_code == 200


def eventually(condition, what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def check_stages(tessera, serve_logs: Path, router: list[str]) -> None:
    expected = [*router, *ENCODER, *DECODER]
    trace_id, traceparent = new_trace()
    ask(tessera, {"traceparent": traceparent}, seed=501)

    def spans() -> list[Span]:
        return read_trace(serve_logs / "spans", trace_id)

    def stages() -> list[Span]:
        return [span for span in spans() if span.name.startswith("tessera.")]

    eventually(lambda: len(stages()) >= len(expected), "spans of all stages")
    found = [stage.name.removeprefix("tessera.") for stage in stages()]
    assert sorted(found) == sorted(expected)
    for room in (router, ENCODER, DECODER):
        # Router and encoder both have an "encode"; each room's others tell its order.
        assert [name for name in found if name in room and name != "encode"] == [n for n in room if n != "encode"]
    # A parent ends, and is written, after its children; Serve's own spans are parents too.
    eventually(lambda: {stage.parent for stage in stages()} <= {span.id for span in spans()}, "every stage's parent")
    assert all(span.start <= span.stop for span in spans())


def test_every_stage_is_a_span_of_one_trace(tessera, serve_logs):
    check_stages(tessera, serve_logs, ROUTER)


@pytest.mark.slow
def test_with_several_routers_too(twins, serve_logs):
    check_stages(twins, serve_logs, SHARED_ROUTER)


def test_a_request_that_was_not_sampled_leaves_no_span(tessera, serve_logs):
    trace_id, traceparent = new_trace()
    ask(tessera, {"traceparent": traceparent.removesuffix("01") + "00"}, seed=502)
    time.sleep(1)
    assert read_trace(serve_logs / "spans", trace_id) == []


def test_the_request_id_stands_in_the_logs_of_all_three(tessera, serve_logs):
    name = "an-id-of-the-client-503"
    ask(tessera, {"x-request-id": name}, seed=503)

    def rooms() -> set[str]:
        logs = serve_logs.glob("replica_tessera_*.log")
        return {path.name.split("_")[2] for path in logs if name in path.read_text(errors="replace")}

    eventually(lambda: rooms() == {"Router", "EncoderPool", "LLMPool"}, "the id in all logs")
