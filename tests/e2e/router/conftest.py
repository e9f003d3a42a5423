"""An application in which everything is there twice, beside the one that all tests share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray import serve

from router.app import build_app
from tests.application import START_S, Tessera, default_config, look
from tests.conftest import ROOMS, Raylets

NAME = "twins"


@pytest.fixture(scope="package")
def twins(three_raylets: Raylets, tiny_checkpoint: Path) -> Iterator[Tessera]:
    """Two Routers with a store actor, two encoders, two decoders; for the slow tests that kill one of each."""
    args = default_config(tiny_checkpoint, three_raylets.http_port)["applications"][0]["args"]
    for section, resource in ROOMS.items():
        args[section] |= {"replicas": 2, "resources": {resource: 0.1}}
    args["router"]["in_flight_bytes"] = 100 * 2**20
    run_twins(args)
    url = f"http://127.0.0.1:{three_raylets.http_port}/{NAME}"
    wait_until_healthy(url)
    config = {"applications": [{"name": NAME, "args": args}]}
    yield Tessera(url, args["model"]["served_names"][0], three_raylets.address, config)
    serve.delete(NAME)


def run_twins(args: dict[str, Any]) -> None:
    """Starts the application, or updates it; does not wait until it is ready."""
    serve.api._run(build_app(args), name=NAME, route_prefix=f"/{NAME}", _blocking=False)


def wait_until_healthy(url: str) -> None:
    """Returns when both Routers have been seen ready, as far as a few answers can tell."""
    deadline = time.monotonic() + 2 * START_S
    healthy = 0
    while healthy < 8:
        assert time.monotonic() < deadline
        answer = look(f"{url}/health")
        healthy = healthy + 1 if answer is not None and answer.status_code == 200 else 0
        time.sleep(0.1 if healthy else 1)
