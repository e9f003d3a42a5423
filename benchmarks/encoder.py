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
from benchmarks.encoder_report import markdown, plot
from encoder_pool.cuda_runner import CudaRunner
from encoder_pool.fused_ops import FusedFp8Ops, FusedOps
from encoder_pool.graphs import CaptureReport, GraphManager, default_budgets
from encoder_pool.model import TILES, Llama4VisionEncoder
from encoder_pool.weights import assemble, dummy_tensors
from tests.vision_reference import SCOUT, make_reference, random_tiles, relative_error

COUNTS = (1, 2, 3, 4, 5, 7, 9, 10, 13, 16, 17, 34, 64)
ROWS = SCOUT.tokens_per_tile
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
    """Our encoder on tiles on the GPU, in graphs or eagerly."""

    def __init__(self, model: Llama4VisionEncoder) -> None:
        self.model = model
        self.manager = GraphManager(model)
        self.report: CaptureReport = self.manager.capture(default_budgets(1, 64), 6 * 2**30)
        rows = MIX_BATCH_TILES * ROWS
        self.output = torch.empty(rows, SCOUT.text_width, dtype=model.dtype, device=model.device)

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
    weights = assemble(SCOUT, tensors.__getitem__, torch.bfloat16, device)
    torch.cuda.reset_peak_memory_stats()
    bf16 = Tessera(Llama4VisionEncoder(SCOUT, weights, FusedOps(SCOUT, device)))
    fp8 = Tessera(Llama4VisionEncoder(SCOUT, weights, FusedFp8Ops(SCOUT, device)))
    transformers = TransformersEncoder(SCOUT, half)
    reference = make_reference(SCOUT, tensors)
    floor = Floor(SCOUT, weights)
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
    result["host to host"] = host_to_host(bf16)
    result["mix"] = mixed(encoders, bf16, device)
    result["capture"] = {
        name: {"seconds": t.report.seconds, "gib": t.report.bytes / 2**30, "budgets": sorted(t.report.captured)}
        for name, t in (("tessera graph", bf16), ("tessera fp8 graph", fp8))
    }
    result["weights_gib"] = sum(t.nbytes for t in half.values()) / 2**30
    return result


def host_to_host(encoder: Tessera) -> dict[int, dict[str, float]]:
    """Tiles in host memory to embeddings in host memory, through the runner that the service uses."""
    runner = CudaRunner(encoder.model, encoder.manager, MIX_BATCH_TILES)
    result = {}
    for count in (1, 5, 17):
        result[count] = summary(wall_ms(partial(runner.encode, [random_tiles(count)])))
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
        torch.cuda.synchronize()
        started = time.perf_counter()
        for batch in batches:
            encode(tiles[: sum(batch)], pixels[: sum(batch)], batch)
        torch.cuda.synchronize()
        result[name] = total / (time.perf_counter() - started)
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
