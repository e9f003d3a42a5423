"""Load on any OpenAI chat endpoint, Tessera's or `vllm serve`'s, and what it costs the server.

python -m benchmarks.load --clients 64 --duration 60 --mix text:0.5,image:0.5
python -m benchmarks.load --clients 8 --processes PID   # with memory and CPU of the process tree below PID
python -m benchmarks.load --sizes 336x336,1920x1080,4032x3024 --processes PID   # and a Router's CPU by picture size
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.processes import Samples, Watch
from benchmarks.router_cpu import router_cpu
from benchmarks.traffic import Outcome, Traffic, parse_mix, parse_size


async def measure(
    traffic: Traffic, clients: int, seconds: float, watch: Watch | None
) -> tuple[list[Outcome], Samples | None]:
    """Traffic for `seconds`, watched if asked for."""
    stop = asyncio.Event()
    watching = asyncio.create_task(watch.run(stop)) if watch else None
    outcomes = await traffic.run(clients, seconds)
    stop.set()
    return outcomes, await watching if watching else None


def summary(outcomes: Sequence[Outcome], seconds: float) -> dict[str, dict[str, Any]]:
    """By kind, and for all kinds together: requests, throughput, errors, percentiles of TTFT and of the whole."""
    kinds = sorted({outcome.kind for outcome in outcomes})
    rows = {kind: [outcome for outcome in outcomes if outcome.kind == kind] for kind in kinds}
    return {kind: _row(of_kind, seconds) for kind, of_kind in {**rows, "all": list(outcomes)}.items()}


def _row(outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    good = [outcome for outcome in outcomes if outcome.error is None]
    return {
        "requests": len(outcomes),
        "per_second": len(good) / seconds,
        "errors": dict(Counter(outcome.error for outcome in outcomes if outcome.error is not None)),
        "ttft_ms": _percentiles([outcome.ttft for outcome in good if outcome.ttft is not None]),
        "latency_ms": _percentiles([outcome.seconds for outcome in good]),
    }


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    return {f"p{q}": float(np.percentile(seconds, q)) * 1e3 for q in (50, 90, 99)} if seconds else {}


def markdown(rows: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| kind | requests | answered a second | errors | TTFT p50 / p90 / p99 ms | latency p50 / p90 / p99 ms |",
        "|---|---|---|---|---|---|",
    ]
    for kind, row in rows.items():
        errors = ", ".join(f"{count} x {error}" for error, count in row["errors"].items()) or "none"
        times = [" / ".join(f"{value:.0f}" for value in row[key].values()) for key in ("ttft_ms", "latency_ms")]
        lines.append(f"| {kind} | {row['requests']} | {row['per_second']:.2f} | {errors} | {times[0]} | {times[1]} |")
    return "\n".join(lines)


def cost(samples: Samples, seconds: float) -> str:
    """Memory and CPU of the processes that had most, as Markdown."""
    lines = ["| process | private memory, start / end MiB | growth, MiB a minute | CPUs |", "|---|---|---|---|"]
    growth = samples.growth()
    for name, values in sorted(samples.lasting().items(), key=lambda item: -item[1][-1])[:12]:
        first, last = (values[i] / 2**20 for i in (0, -1))
        a_minute = f"{growth[name] / 2**20:+.2f}" if growth else "too few samples"
        cpus = samples.cpu_seconds.get(name, 0) / seconds
        lines.append(f"| `{name}` | {first:.0f} / {last:.0f} | {a_minute} | {cpus:.2f} |")
    if samples.store_bytes:
        first, most, last = samples.store_bytes[0], max(samples.store_bytes), samples.store_bytes[-1]
        lines += ["", f"Object stores, MiB: {first / 2**20:.0f} at the start, {most / 2**20:.0f} at most, "]
        lines[-1] += f"{last / 2**20:.0f} at the end."
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="of the server, without /v1")
    parser.add_argument("--model", help="default: the first that the server lists")
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--clients", type=int, default=64, help="each sends one request after the other")
    parser.add_argument("--duration", type=float, default=60, metavar="SECONDS")
    parser.add_argument("--warm-up", type=float, default=10, metavar="SECONDS", help="of the same traffic, discarded")
    parser.add_argument("--mix", type=parse_mix, default="text:0.5,image:0.5", help="kinds: text, image, image-WxH")
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--processes", type=int, metavar="PID", help="watch the processes below this one")
    parser.add_argument("--export", action="append", default=[], metavar="URL", help="Prometheus export of a Ray node")
    parser.add_argument("--sizes", metavar="WxH,...", help="then measure a Router's CPU an image of each size")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write the figures there too")
    options = parser.parse_args(argv)
    if options.sizes and options.processes is None:
        parser.error("--sizes needs --processes")

    headers = {"Authorization": f"Bearer {options.api_key}"}
    model = options.model or httpx.get(f"{options.url}/v1/models", headers=headers).json()["data"][0]["id"]
    result: dict[str, Any] = {"command": " ".join(sys.argv), "clients": options.clients, "seconds": options.duration}
    traffic = Traffic(options.url, model, options.mix, max_tokens=options.max_tokens, api_key=options.api_key)
    watch = Watch(options.processes, options.export) if options.processes else None

    async def run() -> tuple[list[Outcome], Samples | None]:
        await traffic.run(options.clients, options.warm_up)
        return await measure(traffic, options.clients, options.duration, watch)

    outcomes, samples = asyncio.run(run())
    result["kinds"] = summary(outcomes, options.duration)
    print(markdown(result["kinds"]))
    if samples is not None:
        result["processes"] = vars(samples)
        print(f"\n{cost(samples, options.duration)}")
    if options.sizes:
        sizes = [parse_size(size) for size in options.sizes.split(",")]
        table, result["router_cpu"] = router_cpu(options.url, model, options.api_key, options.processes, sizes)
        print(f"\n{table}")
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if result["kinds"]["all"]["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
