"""A running application for the tests: `serve run` on a cluster, from the configuration that users get."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

ROOT = Path(__file__).parents[1]
START_S = 550
# Serve ends its deployments one after the other, and each may take its grace.
STOP_S = 120


@dataclass(frozen=True)
class Tessera:
    """A running application.

    url: of its HTTP ingress; model: its name; address: of its Ray cluster; config: its Serve configuration; starting:
    what /health answered on the way.
    """

    url: str
    model: str
    address: str
    config: dict[str, Any]
    starting: list[httpx.Response] = field(default_factory=list)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def default_config(checkpoint: Path, port: int) -> dict[str, Any]:
    """config.yaml as a user gets it, but for its port and the checkpoint."""
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    config["http_options"]["port"] = port
    config["applications"][0]["args"]["model"]["source"] = str(checkpoint)
    return config


@contextlib.contextmanager
def serve_run(
    config: dict[str, Any], address: str, folder: Path, *, python: Path = Path(sys.executable), cwd: Path = ROOT
) -> Iterator[Tessera]:
    """`serve run` on the cluster at `address` ("local": one of its own), ready when this yields.

    python: of the environment to run in; folder: for its files.
    """
    path, log = folder / "config.yaml", folder / "serve.log"
    path.write_text(yaml.safe_dump(config))
    with log.open("w") as out:
        process = subprocess.Popen(
            [str(python), "-m", "ray.serve.scripts", "run", str(path), "--address", address],
            cwd=cwd,
            stdout=out,
            stderr=subprocess.STDOUT,
            # What a shell runs in the background ignores SIGINT, and hands that down.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
    url = f"http://127.0.0.1:{config['http_options']['port']}"
    try:
        starting = _wait_until_ready(url, process, log)
        yield Tessera(url, config["applications"][0]["args"]["model"]["served_names"][0], address, config, starting)
    finally:
        # As Ctrl-C does. On a cluster of others it would end Serve for them too.
        process.send_signal(signal.SIGINT if address == "local" else signal.SIGTERM)
        process.wait(STOP_S)


def look(url: str) -> httpx.Response | None:
    """The answer to a GET; None where nobody answers, as while Serve's proxy waits for an application's replicas."""
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(url, timeout=5)
    return None


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> list[httpx.Response]:
    """Returns when /health answers 200; fails with the log's end where the process ends or time runs out."""
    deadline = time.monotonic() + START_S
    answers: list[httpx.Response] = []
    while time.monotonic() < deadline and process.poll() is None:
        answer = look(f"{url}/health")
        if answer is not None:
            answers.append(answer)
            if answer.status_code == 200:
                return answers[:-1]
        time.sleep(0.5)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-60:])
    said = answers[-1].text if answers else "nothing"
    pytest.fail(f"the application did not become ready (last answer of /health: {said})\n{tail}", pytrace=False)
