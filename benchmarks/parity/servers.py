"""The servers that are compared, each started once for all its cells, and what they cost in CPU and memory."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from benchmarks.parity.sizes import GIB, HAS_GPU, ModelSize
from llm_pool.plugin import ARCHITECTURE

MODEL = "llama-4"
START_S = 400
STOP_S = 60
STOCK_ARCHITECTURE = "Llama4ForConditionalGeneration"
# vLLM's encoder graphs: every number of tiles of one picture, then what fits 8192 batched tokens.
EXACT_BUDGETS = [144 * tiles for tiles in [*range(1, 18), 22, 26, 30, 34, 40, 48, 56]]

VLLM: dict[str, dict[str, Any]] = {
    "vllm eager": {},
    "vllm graph": {"cudagraph_mm_encoder": True},
    "vllm graph, exact budgets": {
        "cudagraph_mm_encoder": True,
        "encoder_cudagraph_token_budgets": EXACT_BUDGETS,
        "encoder_cudagraph_max_vision_items_per_batch": 56,
    },
}
# Settings of the encoder pool.
TESSERA: dict[str, dict[str, Any]] = {
    "tessera": {},
    "tessera, eager encoder": {"max_graph_tiles": 0},
    "tessera, mps": {},
    "tessera, haproxy": {},
}
# In the order in which they run: what is wanted most comes first.
CONFIGURATIONS = (
    "vllm eager",
    "tessera",
    "vllm graph, exact budgets",
    "vllm graph",
    "tessera, eager encoder",
    "tessera, haproxy",
    "tessera, mps",
)


@dataclass(frozen=True)
class Server:
    """A running server. command: that started it; start_s: until it was ready."""

    url: str
    command: str
    start_s: float
    process: psutil.Process

    def cpu_seconds(self) -> float:
        """CPU time of all its living processes since they started."""
        total = 0.0
        for process in (self.process, *self.process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total


def gpu_memory_gib() -> float | None:
    """GiB in use on the first GPU; None without one."""
    if not HAS_GPU:
        return None
    command = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return float(subprocess.check_output(command, text=True)) / 1024


@contextlib.contextmanager
def running(name: str, size: ModelSize, checkpoint: Path, folder: Path, port: int) -> Iterator[Server]:
    """The server of one of CONFIGURATIONS, ready when this yields; its log and settings are written to `folder`.

    Raises RuntimeError where it does not become ready, or serves another model class than it should.
    """
    stem = name.replace(", ", "-").replace(" ", "-")
    log = folder / f"{stem}.log"
    with contextlib.ExitStack() as stack:
        if name in VLLM:
            command = _vllm_command(VLLM[name], size, checkpoint, port)
            # Without plugins the architecture's name can stand for nothing but vLLM's own class.
            environment, architecture = {"VLLM_PLUGINS": ""}, STOCK_ARCHITECTURE
        else:
            config = folder / f"{stem}.yaml"
            config.write_text(yaml.safe_dump(_tessera_config(TESSERA[name], size, checkpoint, port)))
            command = [sys.executable, "-m", "ray.serve.scripts", "run", str(config), "--address", "local"]
            environment, architecture = {}, ARCHITECTURE
            if name == "tessera, mps":
                environment = stack.enter_context(_mps(folder))
            if name == "tessera, haproxy":
                environment = {"RAY_SERVE_ENABLE_HA_PROXY": "1"}
        server = stack.enter_context(_started(command, environment, f"http://127.0.0.1:{port}", log))
        if f"Resolved architecture: {architecture}" not in log.read_text(errors="replace"):
            raise RuntimeError(f"{name} does not serve {architecture}; see {log}")
        yield server


def _vllm_command(compilation: Mapping[str, Any], size: ModelSize, checkpoint: Path, port: int) -> list[str]:
    args = size.engine_args() | {"load_format": "dummy", "dtype": "bfloat16"}
    if "compilation_config" in args:
        args["compilation_config"] = args["compilation_config"] | compilation
    # What `vllm serve` runs; the command itself wants package metadata that the CPU build lacks.
    command = [sys.executable, "-m", "vllm.entrypoints.launchers.api_server.entry", "--model", str(checkpoint)]
    command += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    for key, value in args.items():
        command.append("--" + key.replace("_", "-"))
        if value is not True:
            command.append(json.dumps(value) if isinstance(value, dict) else str(value))
    return command


def _tessera_config(encoder: Mapping[str, Any], size: ModelSize, checkpoint: Path, port: int) -> dict[str, Any]:
    llm: dict[str, Any] = {"engine_kwargs": size.engine_args()}
    router: dict[str, Any] = {}
    if HAS_GPU:
        llm["gpu_share"] = 0.7
        # A burst of whole pictures, 31 MB each, is to be measured, not refused.
        router["in_flight_bytes"] = 4 * GIB
    model = {"source": str(checkpoint), "served_names": [MODEL], "dtype": "bfloat16", "load_format": "dummy"}
    application = {
        "name": "tessera",
        "route_prefix": "/",
        "import_path": "router.app:build_app",
        "args": {
            "model": model,
            "encoder": {"num_gpus": 0.3 if HAS_GPU else 0, **encoder},
            "llm": llm,
            "router": router,
        },
    }
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": port},
        "applications": [application],
    }


@contextlib.contextmanager
def _started(command: list[str], environment: Mapping[str, str], url: str, log: Path) -> Iterator[Server]:
    started = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        while not _healthy(url):
            if process.poll() is not None or time.monotonic() - started > START_S:
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-40:])
                raise RuntimeError(f"{shlex.join(command)} did not become ready:\n{tail}")
            time.sleep(0.5)
        yield Server(url, shlex.join(command), time.monotonic() - started, psutil.Process(process.pid))
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _healthy(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    return False


@contextlib.contextmanager
def _mps(folder: Path) -> Iterator[dict[str, str]]:
    """NVIDIA's multi-process service, private to this run; yields the environment of its clients."""
    pipes = folder / "mps"
    pipes.mkdir()
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_MPS_LOG_DIRECTORY": str(pipes)}
    control = ["nvidia-cuda-mps-control"]
    subprocess.run([*control, "-d"], env=os.environ | environment, check=True)
    try:
        yield environment
    finally:
        subprocess.run(control, input="quit\n", text=True, env=os.environ | environment, check=True)
