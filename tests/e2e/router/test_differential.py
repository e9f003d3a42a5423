"""Generated requests to Tessera and to `vllm serve` on one checkpoint: a client sees the same, but for a list."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.application import ROOT, default_config, free_port, serve_run
from tests.e2e.router.differential import Answer, ask
from tests.e2e.router.differential_requests import requests

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

CHECKPOINT = ROOT / "demo" / "checkpoint"
MODEL = "tessera-demo"
PARSER = {"enable_auto_tool_choice": True, "tool_call_parser": "llama4_pythonic"}
STOCK = [
    *("-m", "vllm.entrypoints.launchers.api_server.entry", "--model", str(CHECKPOINT), "--served-model-name", MODEL),
    *("--dtype", "float32", "--enforce-eager", "--max-model-len", "16384", "--max-num-seqs", "16"),
    *("--kv-cache-memory-bytes", str(256 << 20), "--limit-mm-per-prompt", '{"image": 16}'),
    *("--enable-prompt-tokens-details", "--enable-auto-tool-choice", "--tool-call-parser", "llama4_pythonic"),
    # vLLM's CPU backend cannot run this vision tower without it.
    *("--worker-extension-cls", "tests.integration.llm_pool.stock_worker.StockWorkerExtension"),
]

# What differs, all of it on requests that both refuse, and why.
PATHS = "the field has its path in JSON, without the names of vLLM's classes; all refusals have one type"
NAMED = "the field is named where vLLM names none, or one of its own"
STATUS = "the request is at fault, not what is implemented"
EARLY = "what is wrong before the first token is no stream"


@contextlib.contextmanager
def vllm_serve(folder: Path) -> Iterator[str]:
    port = free_port()
    environment = os.environ | {"VLLM_PLUGINS": "", "PYTHONPATH": str(ROOT), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    with (folder / "vllm.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *STOCK, "--port", str(port)], cwd=folder, env=environment, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 400
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                    break
            time.sleep(1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def difference(ours: Answer, theirs: Answer) -> str | None:
    """Which of the known differences it is; None where it is none of them."""
    if ours.error is None or theirs.error is None or ours.status != 400:
        return None
    if theirs.status == 200:
        return EARLY
    if theirs.status != ours.status:
        return STATUS if theirs.status == 501 else None
    if theirs.error[0] == "Bad Request":
        return PATHS if ours.error[1] else None
    return NAMED if ours.error[1] else None


def test_a_client_sees_what_it_sees_of_vllm(tmp_path):
    config = default_config(CHECKPOINT, free_port())
    args = config["applications"][0]["args"]
    args["model"]["dtype"] = "float32"
    args["llm"]["frontend_kwargs"] |= PARSER
    cases = requests(MODEL, seed=0)
    assert len(cases) == 300
    assert sum(bool(case.pictures) for case in cases) >= 150
    assert sum(bool(case.spoilt) for case in cases) >= 100

    with vllm_serve(tmp_path) as url:
        theirs = [ask(url, case) for case in cases]
    with serve_run(config, "local", tmp_path) as tessera:
        ours = [ask(tessera.url, case) for case in cases]

    wrong = [
        (case.name, our, their)
        for case, our, their in zip(cases, ours, theirs, strict=True)
        if our != their and (not case.spoilt or difference(our, their) is None)
    ]
    assert not wrong
    assert all(answer.status == 200 for case, answer in zip(cases, ours, strict=True) if not case.spoilt)
