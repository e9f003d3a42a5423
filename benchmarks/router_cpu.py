"""What one request costs a Router's CPU, by the size of its picture: how many Routers feed one encoder.

Decoding, tiling and hashing are timed here, with the Router's own functions; the whole is the CPU time
of the running Routers over requests of that size, less what they spend without any, and the rest of it is HTTP, checks
and hand-off.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import psutil
import torch

from benchmarks.traffic import Traffic, picture
from encoder_pool.settings import ModelSettings
from router.content_hash import content_hash
from router.image_decode import open_picture
from router.tiling import Tiler

ROUTER = "ServeReplica:tessera:Router"
DEMO_MODEL = "demo/checkpoint"
REPEATS = 15
IDLE_S = 10
BUSY_S = 15
MAX_PIXELS = 10**9


def router_cpu(
    url: str, model: str, api_key: str, root: int, sizes: Sequence[tuple[int, int]]
) -> tuple[str, list[dict[str, Any]]]:
    """A Markdown table, and its rows, the first of a request without a picture.

    root: of the process tree in which the Routers are; sizes: (wide, high).
    """
    # As many threads as Ray leaves a Router.
    torch.set_num_threads(1)
    tiler = Tiler(ModelSettings.model_validate({"source": DEMO_MODEL}))
    idle = idle_cpu(root)
    stages: dict[str, dict[str, Any]] = {"text": {"tiles": 0, "decode": 0.0, "tile": 0.0, "hash": 0.0}}
    stages |= {f"image-{wide}x{high}": _stages(tiler, (wide, high)) for wide, high in sizes}
    rows = []
    for kind, row in stages.items():
        row["whole"] = request_cpu(url, model, api_key, root, kind, idle)
        row["rest"] = row["whole"] - row["decode"] - row["tile"] - row["hash"]
        rows.append({"request": kind, **row})
    lines = [
        "Router CPU a request, ms:",
        "",
        "| request | tiles | decode | tile | hash | HTTP, checks, hand-off | whole |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        times = " | ".join(f"{row[key] * 1e3:.1f}" for key in ("decode", "tile", "hash", "rest", "whole"))
        lines.append(f"| {row['request']} | {row['tiles']} | {times} |")
    return "\n".join(lines), rows


def _stages(tiler: Tiler, size: tuple[int, int]) -> dict[str, Any]:
    data = picture(random.Random(0), size)
    image = open_picture(data, "", MAX_PIXELS).rgb()
    name = partial(
        content_hash, data, tenant="", fingerprint="", dtype="bfloat16", quantization=None, max_tiles=tiler.max_tiles
    )
    return {
        "tiles": len(tiler.tile(image).pixels),
        "decode": _cpu_seconds(lambda: open_picture(data, "", MAX_PIXELS).rgb()),
        "tile": _cpu_seconds(lambda: tiler.tile(image)),
        "hash": _cpu_seconds(name),
    }


def _cpu_seconds(call: Callable[[], Any]) -> float:
    call()
    started = time.process_time()
    for _ in range(REPEATS):
        call()
    return (time.process_time() - started) / REPEATS


def idle_cpu(root: int, process: str = ROUTER) -> float:
    """CPU seconds a second of the processes of that name below `root`, while nobody asks them anything."""
    before = _spent(root, process)
    time.sleep(IDLE_S)
    return (_spent(root, process) - before) / IDLE_S


def request_cpu(url: str, model: str, api_key: str, root: int, kind: str, idle: float, process: str = ROUTER) -> float:
    """Their CPU seconds for one request of a kind, with one token of answer; its picture no cache has seen."""
    traffic = Traffic(url, model, {kind: 1}, max_tokens=1, api_key=api_key, seed=random.randrange(2**31))
    before, started = _spent(root, process), time.monotonic()
    outcomes = asyncio.run(traffic.run(clients=2, seconds=BUSY_S))
    spent = _spent(root, process) - before - idle * (time.monotonic() - started)
    return spent / len(outcomes)


def _spent(root: int, process: str) -> float:
    total = 0.0
    for child in psutil.Process(root).children(recursive=True):
        if process in " ".join(child.cmdline()):
            times = child.cpu_times()
            total += times.user + times.system
    return total
