"""Where the time to a picture's first token goes: `python -m benchmarks.timeline --spans FOLDER --out FILE`.

Asks a running application, one request at a time, about pictures that no cache has seen. Every request is traced, and
the spans that its processes write to files on this machine say when each stage began and ended: the application must
have been started with `RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH=router.tracing:files` and `TESSERA_SPANS=FOLDER`. With
`--start` it is the one of benchmarks.parity, started here.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from rich.progress import track

from benchmarks.parity.servers import MODEL, running
from benchmarks.parity.sizes import scout
from benchmarks.spans import Span, new_trace, read_trace
from benchmarks.traffic import chat_body
from encoder_pool.spans import PREFIX
from router.tracing import FOLDER

# Kinds of benchmarks.traffic, by the number of tiles.
PICTURES = {"1 tile": "image-336x336", "17 tiles": "image-1344x1344"}
WHOLE_ENCODE = "encode, as the Router sees it"
# Spans are written after they happened; these are the last of the Router, the encoder and the decoder.
LAST_WRITTEN = {"embed", "first_chunk", "store", "prefill"}
WRITTEN_WITHIN_S = 30
PORT = 8120

# Begin and end of a stage, milliseconds after the request was sent.
Times = tuple[float, float]


def stages(spans: Iterable[Span], sent: float) -> dict[str, Times]:
    """Tessera's stages in the spans of one request, by begin; sent: seconds since the epoch.

    Two are named "encode": the Router's, which begins first, is WHOLE_ENCODE here.
    """
    found: dict[str, Times] = {}
    for span in spans:
        name = span.name.removeprefix(PREFIX)
        if name != span.name:
            name = WHOLE_ENCODE if name == "encode" and WHOLE_ENCODE not in found else name
            found[name] = (1e3 * (span.start - sent), 1e3 * (span.stop - sent))
    return found


def hand_off(times: Mapping[str, Times]) -> float:
    """Milliseconds from the encoder's output in host memory until vLLM's engine has the request."""
    return times["intake"][1] - times["encode"][1]


def medians(requests: Sequence[Mapping[str, Times]]) -> dict[str, Times]:
    """Median begin and end of each stage, by begin."""
    all_times: dict[str, list[Times]] = defaultdict(list)
    for times in requests:
        for name, span in times.items():
            all_times[name].append(span)
    found = {name: (_median(a for a, _ in spans), _median(b for _, b in spans)) for name, spans in all_times.items()}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 2)


async def ask(session: aiohttp.ClientSession, url: str, body: dict[str, Any], traceparent: str) -> tuple[float, float]:
    """When a request was sent and when its first token came, seconds since the epoch."""
    sent = time.time()
    came = None
    async with session.post(f"{url}/v1/chat/completions", json=body, headers={"traceparent": traceparent}) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if came is None and line.startswith(b"data: {"):
                # The first event only says who speaks.
                came = None if "role" in json.loads(line[6:])["choices"][0]["delta"] else time.time()
    if came is None:
        raise RuntimeError("an answer without a token")
    return sent, came


async def written(folder: Path, trace_id: str) -> list[Span]:
    """All spans of a trace. Raises TimeoutError where `folder` does not hold them in time."""
    async with asyncio.timeout(WRITTEN_WITHIN_S):
        while True:
            spans = read_trace(folder, trace_id)
            if {PREFIX + name for name in LAST_WRITTEN} <= {span.name for span in spans}:
                return spans
            await asyncio.sleep(0.2)


async def measure(url: str, model: str, kind: str, count: int, warm_up: int, folder: Path) -> dict[str, Any]:
    """Medians in milliseconds over `count` requests of a kind, after `warm_up` others."""
    rng = random.Random(kind)
    requests, ttfts = [], []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(120)) as session:
        for index in track(range(warm_up + count), kind):
            trace_id, traceparent = new_trace()
            body = chat_body(kind, model, 4, rng) | {"ignore_eos": True}
            sent, came = await ask(session, url, body, traceparent)
            if index >= warm_up:
                requests.append(stages(await written(folder, trace_id), sent))
                ttfts.append(1e3 * (came - sent))
    return {
        "requests": count,
        "ttft_ms": _median(ttfts),
        "hand_off_ms": _median(hand_off(times) for times in requests),
        "stages_ms": medians(requests),
    }


def plot(result: Mapping[str, Any], path: Path) -> None:
    """A bar a stage, from its median begin to its median end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(len(result), 1, figsize=(9, 4 * len(result)), dpi=120, squeeze=False)
    for axes, (label, of_kind) in zip(panels[:, 0], result.items(), strict=True):
        for row, (begin, end) in enumerate(of_kind["stages_ms"].values()):
            axes.barh(row, end - begin, left=begin, color=f"C{row % 10}")
            axes.annotate(f" {end - begin:.1f}", (end, row), va="center", fontsize=8)
        axes.axvline(of_kind["ttft_ms"], color="black", linestyle=":", label="first token at the client")
        axes.set_yticks(range(len(of_kind["stages_ms"])), list(of_kind["stages_ms"]), fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("ms after the request was sent")
        axes.set_title(f"{label}: medians of {of_kind['requests']} requests, one at a time")
        axes.legend(loc="lower left")
    figure.tight_layout()
    figure.savefig(path)


@contextlib.contextmanager
def started(spans: Path) -> Iterator[str]:
    """Tessera as benchmarks.parity starts it, traced to files in the folder `spans`; yields its URL."""
    os.environ |= {"RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH": "router.tracing:files", FOLDER: str(spans.absolute())}
    size = scout(text_layers=4)
    with tempfile.TemporaryDirectory() as temporary:
        checkpoint = Path(temporary, "checkpoint")
        size.write(checkpoint)
        with running("tessera", size, checkpoint, Path(temporary), PORT) as server:
            yield server.url


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timeline", description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="tessera-demo")
    parser.add_argument("--start", action="store_true", help="start Scout's encoder and 4 text layers, ask those")
    parser.add_argument("--out", type=Path, required=True, help="medians as JSON; a plot (.png) beside it")
    parser.add_argument("--count", type=int, default=20, help="requests of each kind")
    parser.add_argument("--warm-up", type=int, default=5, help="requests of each kind before them")
    parser.add_argument("--spans", type=Path, required=True, help="the folder to which spans are written")
    options = parser.parse_args()
    result: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        if options.start:
            options.url, options.model = stack.enter_context(started(options.spans)), MODEL
        for label, kind in PICTURES.items():
            result[label] = asyncio.run(
                measure(options.url, options.model, kind, options.count, options.warm_up, options.spans)
            )
            found = result[label]
            print(f"{label}: first token after {found['ttft_ms']} ms, hand-off {found['hand_off_ms']} ms")
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    plot(result, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
