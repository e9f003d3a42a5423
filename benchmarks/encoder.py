"""Speed and exactness of the vision encoder on one GPU: `python -m benchmarks.encoder [--vllm] [--out FILE.json]`.

Every encoder gets the same random weights at Llama 4's real vision dimensions and tiles that lie on the GPU already:
Tessera uint8 ones, the others normalized bfloat16 ones. A figure is the wall time from the call until the GPU has
finished, embeddings on the GPU. The encoders take turns at each number of tiles, so that all see the same clocks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.encoder_baselines import TransformersEncoder, VllmEncoder, normalize
from benchmarks.encoder_floor import Floor
from benchmarks.encoder_profile import clock_under_load, kernel_times
from benchmarks.encoder_report import markdown, plot
from encoder_pool.cuda_runner import CudaRunner
from encoder_pool.fused_ops import FusedFp8Ops, FusedOps
from encoder_pool.graphs import CaptureReport, GraphManager, default_budgets
from encoder_pool.model import TILES, Llama4VisionEncoder
from encoder_pool.weights import assemble, dummy_tensors
from tests.vision_reference import SCOUT, make_reference, random_tiles, relative_error

COUNTS = (1, 2, 3, 4, 5, 7, 9, 10, 13, 16, 17, 34, 64)
ROWS = SCOUT.tokens_per_tile
GIB = 2**30
# vLLM derives its budgets from max_num_batched_tokens; its default of 2048 would fit no 17-tile image.
VLLM_TOKENS = 64 * ROWS
VLLM_DEFAULT_TOKENS = 8192

# Share of requests by tiles of the picture, and what such pictures are.
MIX = {
    1: (0.10, "336x336 and smaller"),
    5: (0.15, "512x512, VGA"),
    7: (0.05, "800x600"),
    13: (0.30, "4:3 photos, 720p"),
    16: (0.20, "1080p and larger 16:9, 3:2, A4"),
    17: (0.20, "square, 4:5"),
}
MIX_IMAGES = 60
MIX_BATCH_TILES = 64
MIX_PASSES = 3
# One tile is bound by the number of kernels, a whole picture by the matrix units.
PROFILED = (1, 17)

Encode = Callable[[], Any]


def wall_ms(encode: Encode, seconds: float = 0.25) -> list[float]:
    """Milliseconds of repeated calls, for about so many seconds and at least eight times, after two that warm up."""
    encode(), encode()
    torch.cuda.synchronize()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 8 or (time.perf_counter() < end and len(times) < 100):
        started = time.perf_counter()
        encode()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - started) * 1e3)
    return times


def summary(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {"ms": statistics.median(ordered), "p99_ms": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]}


def images_of(tiles: int) -> list[int]:
    """The images that a batch of so many tiles stands for: one up to 17 tiles, else images of 16 or 17."""
    return [tiles] if tiles <= 17 else [17] * (tiles // 17) if tiles % 17 == 0 else [16] * (tiles // 16)


class Tessera:
    """Our encoder on tiles on the GPU, in graphs or eagerly, and with the runner that the service uses.

    gib: device memory of its own weights, graphs and staging buffers.
    """

    def __init__(self, build: Callable[[], Llama4VisionEncoder]) -> None:
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
        self.model = build()
        self.manager = GraphManager(self.model)
        self.report: CaptureReport = self.manager.capture(default_budgets(1, 64), 6 * GIB)
        self.runner = CudaRunner(self.model, self.manager, MIX_BATCH_TILES)
        torch.cuda.empty_cache()
        self.gib = (free - torch.cuda.mem_get_info()[0]) / GIB
        rows = MIX_BATCH_TILES * ROWS
        self.output = torch.empty(rows, SCOUT.text_width, dtype=self.model.dtype, device=self.model.device)

    def graph(self, tiles: torch.Tensor) -> torch.Tensor:
        output = self.output[: len(tiles) * ROWS]
        with torch.inference_mode():
            self.manager.run({TILES: tiles}, output)
        return output


def mixed_queue() -> Iterator[list[int]]:
    """Batches of images (numbers of tiles), first in first out, as a busy replica's queue hands them out."""
    tiles = np.random.default_rng(0).choice(list(MIX), MIX_IMAGES, p=[share for share, _ in MIX.values()])
    batch: list[int] = []
    for count in tiles.tolist():
        if sum(batch) + count > MIX_BATCH_TILES:
            yield batch
            batch = []
        batch.append(count)
    yield batch


def measure(with_vllm: bool) -> dict[str, Any]:
    device = torch.device("cuda")
    tensors = {name: tensor.to(device) for name, tensor in dummy_tensors(SCOUT, seed=int(time.time()))}
    stock = VllmEncoder(SCOUT, tensors, device, VLLM_TOKENS) if with_vllm else None
    half = {name: tensor.bfloat16() for name, tensor in tensors.items()}

    def build(ops: FusedOps) -> Llama4VisionEncoder:
        return Llama4VisionEncoder(SCOUT, assemble(SCOUT, tensors.__getitem__, torch.bfloat16, device), ops)

    bf16 = Tessera(partial(build, FusedOps(SCOUT, device)))
    fp8 = Tessera(partial(build, FusedFp8Ops(SCOUT, device)))
    transformers = TransformersEncoder(SCOUT, half)
    reference = make_reference(SCOUT, tensors)
    floor = Floor(SCOUT, assemble(SCOUT, tensors.__getitem__, torch.bfloat16, device))
    encoders: dict[str, Callable[[torch.Tensor, torch.Tensor, list[int]], Any]] = {
        "tessera graph": lambda tiles, pixels, images: bf16.graph(tiles),
        "tessera fp8 graph": lambda tiles, pixels, images: fp8.graph(tiles),
        "tessera eager": lambda tiles, pixels, images: bf16.model(tiles),
        "transformers eager": lambda tiles, pixels, images: transformers(pixels),
    }
    result: dict[str, Any] = {"vllm": None}
    if stock is not None:
        import vllm

        result["vllm"] = vllm.__version__
        default = stock.capture([ROWS * 2**i for i in range(6)] + [VLLM_DEFAULT_TOKENS])
        exact = stock.capture([count * ROWS for count in sorted({*range(1, 18), *COUNTS})])
        encoders |= {
            "vllm eager": lambda tiles, pixels, images: stock.eager(pixels),
            "vllm graph": lambda tiles, pixels, images: stock.graph(default, pixels, images),
            "vllm graph, exact budgets": lambda tiles, pixels, images: stock.graph(exact, pixels, images),
        }
    result["counts"] = {}
    for count in COUNTS:
        host = random_tiles(count)
        tiles = torch.from_numpy(host).to(device)
        pixels = normalize(tiles, torch.bfloat16)
        expected = torch.cat([reference(host[i : i + 8]) for i in range(0, count, 8)])
        cells = {}
        for name, encode in encoders.items():
            call = partial(encode, tiles, pixels, images_of(count))
            rows = call()
            rows = torch.cat(rows) if isinstance(rows, list) else rows
            cell = {"error": relative_error(rows, expected)} | summary(wall_ms(call))
            cell["tflops"] = count * SCOUT.flops_per_tile() / cell["ms"] / 1e9
            cells[name] = cell
        del rows, expected
        cells["floor"] = summary(wall_ms(floor.graph(count).replay))
        result["counts"][count] = cells
        print(json.dumps({count: cells}), flush=True)
    result["host to host"] = {
        count: summary(wall_ms(partial(bf16.runner.encode, [random_tiles(count)]))) for count in (1, 5, 17)
    }
    result["mix"] = mixed(encoders, bf16, device)
    result["capture"] = {
        name: {
            "seconds": tessera.report.seconds,
            "graphs_gib": tessera.report.bytes / GIB,
            "gib": tessera.gib,
            "budgets": sorted(tessera.report.captured),
        }
        for name, tessera in (("tessera graph", bf16), ("tessera fp8 graph", fp8))
    }
    result["profile"] = {}
    for count in PROFILED:
        replay = partial(bf16.graph, torch.from_numpy(random_tiles(count)).to(device))
        result["profile"][count] = {"kernels": kernel_times(replay), "clock": clock_under_load(replay)}
    return result


def mixed(encoders: dict[str, Any], encoder: Tessera, device: torch.device) -> dict[str, Any]:
    """Tiles a second over the mixed queue, and the share of computed tiles that was padding."""
    batches = list(mixed_queue())
    tiles = torch.from_numpy(random_tiles(MIX_BATCH_TILES)).to(device)
    pixels = normalize(tiles, torch.bfloat16)
    total = sum(map(sum, batches))
    result: dict[str, Any] = {"images": MIX_IMAGES, "tiles": total, "batches": len(batches)}
    steps = [step for batch in batches for step in encoder.manager.plan(sum(batch))]
    computed = sum(step.budget or step.tiles for step in steps)
    result["padding"] = (computed - total) / computed
    for name, encode in encoders.items():
        seconds = []
        for _ in range(MIX_PASSES):
            torch.cuda.synchronize()
            started = time.perf_counter()
            for batch in batches:
                encode(tiles[: sum(batch)], pixels[: sum(batch)], batch)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - started)
        result[name] = total / statistics.median(seconds)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm", action="store_true", help="measure vLLM's encoder too; needs vLLM")
    parser.add_argument("--out", type=Path, help="raw figures as JSON; a plot with the same name and .png beside it")
    options = parser.parse_args()
    result = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        **measure(options.vllm),
    }
    print(markdown(result))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
        plot(result, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
