"""What a text request costs a Router's CPU, beside what it costs an empty Serve application in the same run.

python -m benchmarks.serve_floor [--config config.yaml]   # starts both on this machine

The empty application has the way of a Router and nothing else: it parses the body, calls a second deployment through a
streaming handle, and streams what that yields. What it costs is Ray's and Serve's, and no Router can go below.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from ray import serve
from ray.serve.handle import DeploymentHandle

from benchmarks.router_cpu import ROUTER, idle_cpu, request_cpu
from router.app import build_app

EMPTY = "ServeReplica:empty:Ingress"
REPEATS = 3
# What a decoder yields for an answer of one token: its beginning, and its end.
CHUNKS = ('data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n', "data: [DONE]\n\n")

api = FastAPI()


@serve.deployment(max_ongoing_requests=100)
class Answers:
    async def answer(self, body: dict[str, Any]) -> AsyncIterator[str]:
        for chunk in CHUNKS:
            yield chunk


@serve.deployment(max_ongoing_requests=100)
@serve.ingress(api)
class Ingress:
    def __init__(self, answers: DeploymentHandle) -> None:
        self._answers = answers.options(stream=True)

    @api.post("/v1/chat/completions")
    async def chat(self, request: Request) -> StreamingResponse:
        return StreamingResponse(self._answers.answer.remote(await request.json()), media_type="text/event-stream")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serve_floor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, default=Path("config.yaml"), help="of a Tessera with one Router")
    config = yaml.safe_load(parser.parse_args(argv).config.read_text())
    serve.start(proxy_location=config.get("proxy_location"), http_options=config["http_options"])
    args = config["applications"][0]["args"]
    serve.run(build_app(args), name="tessera", route_prefix="/")
    serve.run(Ingress.bind(Answers.bind()), name="empty", route_prefix="/empty")  # type: ignore[attr-defined]

    url, model = f"http://127.0.0.1:{config['http_options']['port']}", args["model"]["served_names"][0]
    found: dict[str, list[float]] = {EMPTY: [], ROUTER: []}
    idle = {process: idle_cpu(os.getpid(), process) for process in found}
    for _ in range(1 + REPEATS):
        for process, times in found.items():
            base = f"{url}/empty" if process == EMPTY else url
            times.append(request_cpu(base, model, "none", os.getpid(), "text", idle[process], process))
    empty, router = (statistics.median(times[1:]) for times in found.values())  # the first warms up
    print(f"CPU of a text request, median of {REPEATS}: empty Serve application {empty * 1e3:.1f} ms,", end=" ")
    print(f"Router {router * 1e3:.1f} ms, {router / empty:.2f} times as much")
    serve.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
