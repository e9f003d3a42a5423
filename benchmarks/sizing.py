"""Does a pool of encoders pay? `python -m benchmarks.sizing --gpus 8 --decoder-gpus 2 --decoder-ms 90`.

Splits GPUs into encoders and decoders, and compares with vLLM engines on all of them that encode for themselves. What
an encoder takes is measured (`results/encoder_h200.json`, or `--encoder FILE` for your GPU); what a request costs a
decoder depends on model and prompts: `--decoder-ms` is 1000 / (requests a second that one decoder sustains with prompts
of that length, image tokens included, but without its encoder).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.traffic import parse_size
from encoder_pool.settings import ModelSettings
from router.tiling import Tiler, tiles_of

RESULTS = Path(__file__).parent / "results"
DEMO = Path(__file__).parents[1] / "demo" / "checkpoint"
# How busy a replica may be on average: above it, queues grow fast.
BUSY = 0.7


@dataclass(frozen=True)
class Need:
    """What one request costs, in milliseconds of a busy replica.

    decoder: of a decoder's GPUs together; ours, theirs: of one GPU that encodes its pictures in Tessera and in vLLM, in
    vLLM as a share of one GPU of the engine (its data mode spreads tiles over the engine's GPUs).
    """

    decoder: float
    ours: float
    theirs: float


@dataclass(frozen=True)
class Plan:
    """encoders: GPUs with an encoder, 0 for vLLM engines that encode; decoders: engines; capacity: requests a second
    at which the busiest pool is BUSY.
    """

    encoders: int
    decoders: int
    capacity: float


def monolithic(gpus: int, decoder_gpus: int, need: Need) -> Plan:
    """vLLM engines on all GPUs: each decodes and encodes in turn."""
    engines = gpus // decoder_gpus
    return Plan(0, engines, BUSY * engines * 1000 / (need.decoder + need.theirs))


def best_split(gpus: int, decoder_gpus: int, need: Need) -> Plan:
    """The split with the highest capacity, of those the one with the fewest encoders; `gpus` exceeds `decoder_gpus`."""
    plans = []
    for encoders in range(1, gpus - decoder_gpus + 1):
        decoders = (gpus - encoders) // decoder_gpus
        capacity = BUSY * 1000 * min(encoders / need.ours, decoders / need.decoder)
        plans.append(Plan(encoders, decoders, capacity))
    return max(plans, key=lambda plan: plan.capacity)


def gpus_for(rate: float, decoder_gpus: int, need: Need) -> tuple[int, int]:
    """GPUs that vLLM engines and that Tessera take for `rate` requests a second, no replica busier than BUSY."""
    per_second = rate / (BUSY * 1000)
    theirs = decoder_gpus * math.ceil(per_second * (need.decoder + need.theirs))
    ours = math.ceil(per_second * need.ours) + decoder_gpus * math.ceil(per_second * need.decoder)
    return theirs, ours


def wait_ms(rate: float, servers: int, service_ms: float) -> float:
    """Mean wait in a queue, random arrivals spread evenly over servers that take a fixed time (M/D/1); may be inf."""
    busy = rate * service_ms / 1000 / servers
    return busy * service_ms / (2 * (1 - busy)) if busy < 1 else math.inf


def encode_ms(measured: Mapping[str, Any], mode: str, tiles: int) -> float:
    """Milliseconds for `tiles` at once, from the table of benchmarks.encoder; between its rows and beyond, a line."""
    rows = sorted((int(count), row[mode]["ms"]) for count, row in measured["counts"].items())
    above = next((i for i, (count, _) in enumerate(rows) if count >= tiles and i > 0), len(rows) - 1)
    (low, low_ms), (high, high_ms) = rows[above - 1], rows[above]
    return low_ms + (high_ms - low_ms) * (tiles - low) / (high - low)


def need_of(tiles: int, pictures: float, decoder_ms: float, decoder_gpus: int, measured: Mapping[str, Any]) -> Need:
    """vLLM's mode is the faster of its eager and default graph modes; each engine spreads tiles over its GPUs."""
    part = math.ceil(tiles / decoder_gpus)
    theirs = min(encode_ms(measured, mode, part) for mode in ("vllm eager", "vllm graph"))
    return Need(decoder_ms, pictures * encode_ms(measured, "tessera graph", tiles), pictures * theirs)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sizing", description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--decoder-gpus", type=int, default=1, help="of one decoder: its tensor-parallel size")
    parser.add_argument("--decoder-ms", type=float, required=True, help="of one decoder's time that a request costs")
    parser.add_argument("--size", type=parse_size, default="1344x1344", help="of a picture, WIDTHxHEIGHT")
    parser.add_argument("--pictures", type=float, default=1.0, help="of an average request")
    parser.add_argument("--rate", type=float, help="requests a second to plan for; default: half of vLLM's capacity")
    parser.add_argument("--encoder", type=Path, default=RESULTS / "encoder_h200.json", help="of benchmarks.encoder")
    options = parser.parse_args()
    if options.pictures <= 0 or options.decoder_ms <= 0 or not 1 <= options.decoder_gpus < options.gpus:
        parser.error("--pictures and --decoder-ms are above zero, --decoder-gpus is 1 to --gpus - 1")
    tiler = Tiler(ModelSettings.model_validate({"source": str(DEMO)}))
    tiles = tiles_of(tiler.canvas(options.size, tiler.max_tiles))
    measured = json.loads(options.encoder.read_text())
    need = need_of(tiles, options.pictures, options.decoder_ms, options.decoder_gpus, measured)
    whole, split = (plan(options.gpus, options.decoder_gpus, need) for plan in (monolithic, best_split))
    rate = options.rate or whole.capacity / 2

    console = Console()
    wide, high = options.size
    console.print(f"A picture of {wide}x{high} is {tiles} tiles. {measured['gpu']}; no replica busier than {BUSY:.0%}.")
    table = Table("", "vLLM engines that encode", "Tessera")
    pools = f"{split.encoders} encoders, {split.decoders} decoders"
    table.add_row(f"{options.gpus} GPUs as", f"{whole.decoders} engines", pools)
    table.add_row("most requests a second", f"{whole.capacity:.1f}", f"{split.capacity:.1f}")
    table.add_section()
    table.add_row("at requests a second", f"{rate:.1f}", f"{rate:.1f}")
    table.add_row("GPUs needed", *map(str, gpus_for(rate, options.decoder_gpus, need)))
    queues = ((whole.decoders, need.theirs), (split.encoders, need.ours))
    table.add_row("wait and encoding, ms", *(f"{wait_ms(rate, servers, ms) + ms:.0f}" for servers, ms in queues))
    # While an engine encodes, none of its streams gets a token.
    table.add_row("decoders stand still", f"{rate / whole.decoders * need.theirs / 1000:.0%}", "0%")
    console.print(table)
    if split.capacity > whole.capacity:
        console.print("Tessera serves more requests.")
    else:
        console.print("vLLM engines that encode serve more requests: do not use Tessera here.")


if __name__ == "__main__":
    main()
