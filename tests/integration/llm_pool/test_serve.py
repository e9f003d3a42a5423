"""The deployment inside a real, local Ray Serve: it answers through a handle, and leaves no process behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray import serve
from ray.serve.handle import DeploymentHandle

from encoder_pool.settings import ModelSettings
from llm_pool.deployment import llm_deployment
from llm_pool.placement import resolve
from llm_pool.settings import LLMSettings
from tests.conftest import Raylets
from tests.integration.llm_pool import parity
from tests.pictures import user

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

QUESTION: dict[str, Any] = {"messages": [user("Say what you can.")], "max_tokens": 8, "temperature": 0}


def start(checkpoint: Path, name: str) -> DeploymentHandle:
    settings = resolve(LLMSettings(engine_kwargs=parity.ENGINE_KWARGS))
    deployment = llm_deployment(settings).options(graceful_shutdown_timeout_s=5, health_check_period_s=1)
    model = ModelSettings(source=str(checkpoint))
    handle = serve.run(deployment.bind(model, settings), name=name, route_prefix=None)
    return handle.options(stream=True, _by_reference=True)


def engine_processes() -> list[psutil.Process]:
    """vLLM's processes below this one, and those that nobody is the parent of any more."""
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        if "VLLM::" in f"{process.info['name']} {' '.join(process.info['cmdline'] or [])}":
            found.append(process)
    return found


def wait_until_gone(before: set[int], within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while left := [process for process in engine_processes() if process.pid not in before]:
        assert time.monotonic() < deadline, left
        time.sleep(0.5)


@pytest.mark.parametrize("how", ["deleted", "killed"])
def test_a_replica_answers_and_takes_its_engine_along(three_raylets: Raylets, tiny_checkpoint: Path, how: str) -> None:
    before = {process.pid for process in engine_processes()}
    handle = start(tiny_checkpoint, how)
    [reply] = list(handle.answer.remote("chat", dict(QUESTION), None, "test"))
    assert reply.status == 200
    ours = [process for process in engine_processes() if process.pid not in before]
    assert ours, "vLLM names its processes differently now"
    if how == "killed":
        replica = ours[0].parent()
        while replica is not None and "ServeReplica" not in " ".join(replica.cmdline()):
            replica = replica.parent()
        assert replica is not None
        replica.kill()
        deadline = time.monotonic() + 60
        while any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in ours):
            assert time.monotonic() < deadline
            time.sleep(0.5)
    serve.delete(how)
    wait_until_gone(before)


def test_without_the_plugin_an_engine_does_not_start(tiny_checkpoint: Path) -> None:
    code = (
        "import os; os.environ['VLLM_PLUGINS'] = ''\n"
        "from encoder_pool.settings import ModelSettings\n"
        "from llm_pool.engine_args import engine_args\n"
        f"engine_args(ModelSettings(source={str(tiny_checkpoint)!r}), {{}}, 'mp').create_engine_config()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "TesseraLlama4ForConditionalGeneration" in done.stderr
