"""One measurement: vLLM's own load generator (`vllm bench serve`) against a server, in this process."""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

from benchmarks.parity.servers import MODEL, Server, gpu_memory_gib
from benchmarks.parity.sizes import ModelSize
from benchmarks.parity.workloads import Workload, write_requests

# What counts as well served: first token and time of each further token, in milliseconds.
SLO = {"ttft": 500, "tpot": 50}
MOST_AT_ONCE = 64
METRICS = ("ttft", "tpot", "itl")
# Requests of a cell with a rate: so many seconds of it, within these bounds.
SECONDS = 6
FEWEST, MOST = 16, 400


def requests_at(rate: float, size: ModelSize) -> int:
    """How many requests a cell with this many a second has."""
    return round(max(FEWEST, min(MOST, rate * SECONDS)) * min(1.0, 4 * size.scale))


def run_load(
    server: Server,
    workload: Workload,
    count: int,
    rate: float,
    seed_name: str,
    checkpoint: Path,
    folder: Path,
    at_once: int = MOST_AT_ONCE,
) -> dict[str, Any]:
    """Sends `count` requests, Poisson arrivals of `rate` a second or, at infinity, `at_once` at a time.

    seed_name: what the requests and their arrivals are drawn from; checkpoint: whose tokenizer counts. Returns counts,
    requests and tokens a second, median and p99 of METRICS in milliseconds, goodput (requests a second within SLO),
    CPU seconds of the server a request, GPU memory in GiB after it, and the load generator's arguments.
    """
    from vllm.benchmarks.serve import add_cli_args, main
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    seed = zlib.crc32(seed_name.encode())
    requests = folder / "requests.jsonl"
    write_requests(workload, count, seed, requests)
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    arguments = [
        "--backend=openai-chat", f"--base-url={server.url}", "--endpoint=/v1/chat/completions", f"--model={MODEL}",
        f"--tokenizer={checkpoint}", "--dataset-name=custom_image", f"--dataset-path={requests}", "--disable-shuffle",
        "--enable-multimodal-chat", f"--num-prompts={count}", f"--custom-output-len={workload.output}",
        "--ignore-eos", "--temperature=0", f"--request-rate={rate}", f"--seed={seed}", "--disable-tqdm",
        "--ready-check-timeout-sec=0", f"--percentile-metrics={','.join(METRICS)}", "--metric-percentiles=50,99",
        "--goodput", *(f"{name}:{limit}" for name, limit in SLO.items()),
    ]  # fmt: skip
    if math.isinf(rate):
        arguments.append(f"--max-concurrency={at_once}")
    cpu = server.cpu_seconds()
    result = main(parser.parse_args(arguments))
    cpu = server.cpu_seconds() - cpu
    latencies = {f"{metric}_{p}_ms": result[f"{p}_{metric}_ms"] for metric in METRICS for p in ("p50", "p99")}
    return {
        "requests": count,
        "failed": count - result["completed"],
        "rate": rate if math.isfinite(rate) else None,
        "seconds": result["duration"],
        "requests_per_s": result["request_throughput"],
        "output_tokens_per_s": result["output_throughput"],
        **latencies,
        "goodput_per_s": result["request_goodput"],
        "cpu_s_per_request": cpu / count,
        "gpu_gib": gpu_memory_gib(),
        "load": " ".join(arguments),
    }
