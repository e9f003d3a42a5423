"""Runs the comparison: `python -m benchmarks.parity --out FILE.json [--only PATTERN ...] [--resume]`.

A cell is "configuration/workload/load". The loads are `burst` (all requests as fast as they are taken: what the server
can do), `32 clients` (the same, fewer at once), `half` and `full`: Poisson arrivals at that share of what monolithic
vLLM with an eager encoder did in its burst of the same workload, which therefore comes first; and `eager full`: at what
Tessera with an eager encoder did.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import json
import math
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.parity.load import MOST_AT_ONCE, SLO, requests_at, run_load
from benchmarks.parity.report import markdown, plot
from benchmarks.parity.servers import CONFIGURATIONS, Server, gpu_memory_gib, running
from benchmarks.parity.sizes import HAS_GPU, TINY, ModelSize, scout
from benchmarks.parity.workloads import WORKLOADS

LIBRARIES = ("vllm", "torch", "ray", "transformers")


@dataclass(frozen=True)
class Load:
    """share: requests a second, of what `reference` did in its burst; None: as fast as they are taken,
    `at_once` at most at a time.
    """

    share: float | None = None
    reference: str = "vllm eager"
    at_once: int = MOST_AT_ONCE


LOADS = {
    "burst": Load(),
    "half": Load(0.5),
    "full": Load(1.0),
    "eager full": Load(1.0, reference="tessera, eager encoder"),
    "32 clients": Load(at_once=32),
}
MUST_HAVE = [
    f"{configuration}/{workload}/{load}"
    for configuration in ("vllm eager", "vllm graph", "vllm graph, exact budgets", "tessera")
    for workload in ("17-tile picture", "mixed chat", "text only")
    for load in ("burst", "half", "full")
]
# Before a server's first cell: pictures of all sizes, texts, and a full batch.
WARM_UP = {"17-tile picture": 24, "mixed chat": 96}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parity", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results as JSON; a table (.md) and a plot beside it")
    parser.add_argument("--only", nargs="+", default=MUST_HAVE, metavar="CELL", help="cells to run, with * and ?")
    parser.add_argument("--resume", action="store_true", help="keep the cells of --out that are there already")
    parser.add_argument("--limit-s", type=float, default=460, help="no cell begins after so many seconds")
    parser.add_argument(
        "--together", action="store_true", help="start all servers at once: saves time, and the others are idle beside"
    )
    parser.add_argument("--text-layers", type=int, default=8, help="layers of Scout's text model")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal with the demo's size, on a CPU too")
    parser.add_argument("--port", type=int, default=8120)
    parser.add_argument("--logs", type=Path, help="folder for the servers' logs; default: a temporary one")
    return parser.parse_args()


def machine(options: argparse.Namespace) -> dict[str, Any]:
    """What the figures were measured on and with."""
    gpu = "none"
    if HAS_GPU:
        query = ["nvidia-smi", "--id=0", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        gpu = subprocess.check_output(query, text=True).strip()
    return {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "gpu": gpu,
        "versions": {name: importlib.import_module(name).__version__ for name in LIBRARIES},
        "model": "the demo's size" if options.tiny else f"Scout, {options.text_layers} text layers, dummy weights",
        "slo_ms": SLO,
        "most_at_once": MOST_AT_ONCE,
        "together": options.together,
    }


def without_paths(text: str, checkpoint: Path, folder: Path) -> str:
    """`text` with names in place of the paths that only this machine has, so that its commands can be read anywhere."""
    # The checkpoint may lie in the folder.
    for path, name in ((checkpoint, "CHECKPOINT"), (folder, "LOGS"), (sys.executable, "python")):
        text = text.replace(str(path), name)
    return text


class Grid:
    """The cells of one result file."""

    def __init__(self, options: argparse.Namespace, machine: dict[str, Any]) -> None:
        self._options = options
        self._deadline = time.monotonic() + options.limit_s
        self.result: dict[str, Any] = {"machine": machine, "servers": {}, "cells": {}}
        if options.resume and options.out.exists():
            self.result = json.loads(options.out.read_text())

    def wanted(self, configuration: str) -> list[tuple[str, str]]:
        """(workload, load) of the cells to run that have no result yet, in order."""
        cells = [(workload, load) for workload in WORKLOADS for load in LOADS]
        return [
            cell
            for cell in cells
            if (name := "/".join((configuration, *cell))) not in self.result["cells"]
            and any(fnmatch(name, pattern) for pattern in self._options.only)
        ]

    def run(self, size: ModelSize, checkpoint: Path, folder: Path) -> None:
        """Runs the cells, one server after the other; with `together`, all servers are started at once before."""
        wanted = {name: cells for name in CONFIGURATIONS if (cells := self.wanted(name))}
        start = partial(running, size=size, checkpoint=checkpoint, folder=folder)
        ports = itertools.count(self._options.port)
        if not self._options.together:
            for configuration, cells in wanted.items():
                if time.monotonic() < self._deadline:
                    with start(configuration, port=next(ports)) as server:
                        self._run_cells(configuration, server, cells, size, checkpoint, folder)
            return
        with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(wanted)) as pool:
            started = [pool.submit(stack.enter_context, start(name, port=next(ports))) for name in wanted]
            # None is measured while another one loads.
            servers = [future.result() for future in started]
            for (configuration, cells), server in zip(wanted.items(), servers, strict=True):
                self._run_cells(configuration, server, cells, size, checkpoint, folder)

    def _run_cells(
        self,
        configuration: str,
        server: Server,
        cells: list[tuple[str, str]],
        size: ModelSize,
        checkpoint: Path,
        folder: Path,
    ) -> None:
        measure = partial(run_load, checkpoint=checkpoint, folder=folder)
        self.result["servers"][configuration] = {
            "command": server.command,
            "start_s": server.start_s,
            "gpu_gib": gpu_memory_gib(),
        }
        for workload, count in WARM_UP.items():
            count = max(4, round(count * size.scale))
            measure(server, WORKLOADS[workload], count, math.inf, f"warm-up/{workload}")
        for workload, load in cells:
            if time.monotonic() > self._deadline:
                break
            count, rate = self._amount(workload, load, size)
            at_once = LOADS[load].at_once
            cell = measure(server, WORKLOADS[workload], count, rate, f"{workload}/{load}", at_once=at_once)
            self.result["cells"][f"{configuration}/{workload}/{load}"] = cell
            text = json.dumps(self.result, indent=1) + "\n"
            self._options.out.write_text(without_paths(text, checkpoint, folder))

    def _amount(self, workload: str, load: str, size: ModelSize) -> tuple[int, float]:
        """Number of requests of a cell, and how many a second."""
        share = LOADS[load].share
        if share is None:
            return max(4, round(WORKLOADS[workload].burst * size.scale)), math.inf
        reference = f"{LOADS[load].reference}/{workload}/burst"
        saturated = self.result["cells"].get(reference)
        if saturated is None:
            raise SystemExit(f"the rates come from '{reference}': run that first")
        rate = share * saturated["requests_per_s"]
        return requests_at(rate, size), rate


def main() -> None:
    options = parse()
    size = TINY if options.tiny else scout(options.text_layers)
    grid = Grid(options, machine(options))
    with tempfile.TemporaryDirectory() as temporary:
        checkpoint, folder = Path(temporary, "checkpoint"), options.logs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        size.write(checkpoint)
        grid.run(size, checkpoint, folder)
    report = markdown(grid.result)
    options.out.with_suffix(".md").write_text(report + "\n")
    plot(grid.result, options.out.with_suffix(".png"))
    print(report)


if __name__ == "__main__":
    main()
