"""Every measured cell stands in the tables, the losing ones too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.parity.load import METRICS
from benchmarks.parity.report import markdown, plot


def cell(requests_per_s: float, ttft_ms: float, failed: int = 0) -> dict[str, Any]:
    latencies = {f"{metric}_{p}_ms": ttft_ms for metric in METRICS for p in ("p50", "p99")}
    return {
        "requests": 10, "failed": failed, "rate": None, "requests_per_s": requests_per_s, "output_tokens_per_s": 5.0,
        "goodput_per_s": 1.0, "cpu_s_per_request": 0.1, "gpu_gib": None, **latencies,
    }  # fmt: skip


RESULT: dict[str, Any] = {
    "machine": {
        "date": "2026-01-01", "gpu": "a GPU", "versions": {"vllm": "0"}, "model": "a model", "slo_ms": {"ttft": 500},
        "most_at_once": 64, "together": True,
    },
    "servers": {"vllm eager": {"start_s": 30.0}},
    "cells": {
        "vllm eager/17-tile picture/burst": cell(9.0, 100.0),
        "tessera/17-tile picture/burst": cell(3.0, 300.0, failed=2),
        "tessera/17-tile picture/half": cell(2.0, 77.5) | {"rate": 4.5},
    },
}  # fmt: skip


def test_every_cell_is_a_row() -> None:
    rows = [line for line in markdown(RESULT).splitlines() if line.startswith(("| vllm", "| tessera"))]
    assert len(rows) == 3
    assert "9.00" in rows[0]
    assert rows[1].endswith(" 2 |")
    assert "4.5/s" in rows[2]
    assert "77.5 / 77.5" in rows[2]


def test_the_plot_is_drawn(tmp_path: Path) -> None:
    plot(RESULT, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000
