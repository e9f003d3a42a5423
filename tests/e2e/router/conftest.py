"""Applications for slow tests, on the cluster and beside the application that all tests share."""

from __future__ import annotations

import contextlib
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
CORS_ORIGIN = "https://chat.example"


@contextlib.contextmanager
def deployed(name: str, raylets: Raylets, checkpoint: Path, changes: dict[str, dict[str, Any]]) -> Iterator[Tessera]:
    """The application below the path /`name`. changes: to the sections of its `args:`."""
    args = default_config(checkpoint, raylets.http_port)["applications"][0]["args"]
    for section, resource in ROOMS.items():
        args[section]["resources"] = {resource: 0.1}
    for section, change in changes.items():
        args[section] |= change
    run_application(name, args)
    url = f"http://127.0.0.1:{raylets.http_port}/{name}"
    wait_until_healthy(url)
    config = {"applications": [{"name": name, "args": args}]}
    yield Tessera(url, args["model"]["served_names"][0], raylets.address, config)
    serve.delete(name)


@pytest.fixture(scope="package")
def twins(three_raylets: Raylets, tiny_checkpoint: Path) -> Iterator[Tessera]:
    """Two Routers with a store actor, two encoders, two decoders; for the slow tests that kill one of each.

    In float32: a retried answer is decoded in another batch, whose bfloat16 sums may turn a tie of two tokens.
    """
    changes: dict[str, dict[str, Any]] = {section: {"replicas": 2} for section in ROOMS}
    changes["model"] = {"dtype": "float32"}
    changes["router"]["in_flight_bytes"] = 100 * 2**20
    with deployed(NAME, three_raylets, tiny_checkpoint, changes) as running:
        yield running


@pytest.fixture(scope="package")
def strict(three_raylets: Raylets, tiny_checkpoint: Path) -> Iterator[Tessera]:
    """Short time-outs, and what is off by default: embeddings from clients, and CORS."""
    router = {
        "accept_image_embeds": True,
        "cors_origins": [CORS_ORIGIN],
        "body_timeout_s": 2,
        "chunk_timeout_s": 5,
    }
    with deployed("strict", three_raylets, tiny_checkpoint, {"router": router}) as running:
        yield running


def run_application(name: str, args: dict[str, Any]) -> None:
    """Starts the application, or updates it; does not wait until it is ready."""
    serve.api._run(build_app(args), name=name, route_prefix=f"/{name}", _blocking=False)


def wait_until_healthy(url: str) -> None:
    """Returns when all Routers have been seen ready, as far as a few answers can tell."""
    deadline = time.monotonic() + 2 * START_S
    healthy = 0
    while healthy < 8:
        assert time.monotonic() < deadline
        answer = look(f"{url}/health")
        healthy = healthy + 1 if answer is not None and answer.status_code == 200 else 0
        time.sleep(0.1 if healthy else 1)
