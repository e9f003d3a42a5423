"""CUDA graphs of an encoder: capture at start, and replay of the cheapest set of them for each batch.

Every graph of a manager reads the same input buffers and writes the same output buffer, and all share one memory
pool: they are replayed one after the other on one stream. The largest is captured first, so that the smaller ones
find their memory in the pool.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from encoder_pool.packing import Costs, Packer, Step
from encoder_pool.protocol import GraphableEncoder, Inputs

logger = logging.getLogger("ray.serve")

_TIMED_REPLAYS = 3


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """What became of the wanted budgets.

    captured, failed: budgets in tiles; over_limit: those whose memory would exceed the limit.
    seconds: of the whole capture; bytes: device memory that the graphs and their buffers hold.
    """

    captured: list[int]
    failed: list[int]
    over_limit: list[int]
    seconds: float
    bytes: int


@contextmanager
def _noting(failures: dict[int, str], budget: int) -> Iterator[None]:
    """Notes the reason instead of raising where a budget runs out of memory or cannot be captured."""
    try:
        yield
    except RuntimeError as error:
        failures[budget] = str(error).splitlines()[0]
        torch.cuda.empty_cache()


def default_budgets(smallest: int, largest: int) -> list[int]:
    """Every count up to 17 (the tiles of one image), then steps of an eighth, and twice 17; up to `largest`."""
    budgets = set(range(1, 18)) | {34}
    step = 18
    while step <= largest:
        budgets.add(step)
        step += max(1, step // 8)
    budgets.add(largest)
    return sorted(budget for budget in budgets if smallest <= budget <= largest)


class GraphManager:
    """Owns the graphs of one model on one device. Not thread-safe: one caller at a time, on one stream."""

    def __init__(self, model: GraphableEncoder) -> None:
        self._model = model
        self._config = model.graph_config()
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._buffers: dict[str, torch.Tensor] = {}
        self._output = torch.empty(0)
        self._pool = torch.cuda.graph_pool_handle()
        self._packer = Packer(Costs({}, {1: 0.0}))

    def capture(self, budgets: Sequence[int], max_bytes: int) -> CaptureReport:
        """Captures a graph for each budget (in tiles) and measures it.

        A budget that does not fit into `max_bytes` of device memory is left out. One that fails, for want of memory
        or for another reason, is left out with a warning; without any graph left, everything runs eagerly.
        """
        started, device = time.monotonic(), self._model.device
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info(device)[0]
        failures: dict[int, str] = {}
        # Eager runs first: they load every kernel, and no graph holds the memory that they need.
        eager: dict[int, tuple[float, int]] = {}
        for budget in sorted(budgets, reverse=True):
            with _noting(failures, budget):
                eager[budget] = self._measure_eager(budget)
        torch.cuda.empty_cache()
        fitting = [budget for budget, (_, peak_bytes) in eager.items() if peak_bytes <= max_bytes]
        seconds: dict[int, float] = {}
        for budget in fitting:
            with _noting(failures, budget):
                seconds[budget] = self._capture_one(budget)
                logger.info("encoder graph of %d tiles: %.2f ms", budget, seconds[budget] * 1e3)
        torch.cuda.empty_cache()
        if failures:
            logger.warning("no encoder graph for %s tiles: %s", sorted(failures), next(iter(failures.values())))
        # Where not even an eager run could be measured, one tile at a time is the best guess.
        self._packer = Packer(Costs(seconds, {budget: s for budget, (s, _) in eager.items()} or {1: 0.0}))
        return CaptureReport(
            captured=sorted(seconds),
            failed=sorted(failures),
            over_limit=sorted(eager.keys() - set(fitting)),
            seconds=time.monotonic() - started,
            bytes=free - torch.cuda.mem_get_info(device)[0],
        )

    def run(self, inputs: Inputs, output: torch.Tensor) -> None:
        """Encodes all tiles of `inputs` (on the device) into `output`, on the current stream, without waiting.

        output: [tiles * output_rows_per_tile, output_width].
        """
        tiles = self._model.item_spec(inputs).tiles
        rows, start = self._config.output_rows_per_tile, 0
        for step in self._packer.plan(tiles):
            part = self._model.select(inputs, start, start + step.tiles)
            target = output[start * rows : (start + step.tiles) * rows]
            if step.budget is None:
                target.copy_(self._model.forward_eager(part))
            else:
                for key, value in self._model.replay_inputs(part).items():
                    self._buffers[key][: step.tiles].copy_(value)
                    self._buffers[key][step.tiles : step.budget].zero_()
                self._graphs[step.budget].replay()
                target.copy_(self._output[: target.shape[0]])
            start += step.tiles

    def plan(self, tiles: int) -> tuple[Step, ...]:
        """The steps in which `run` encodes a batch of this size."""
        return self._packer.plan(tiles)

    def _measure_eager(self, budget: int) -> tuple[float, int]:
        """Seconds and peak bytes of an eager run, after one that compiles and initializes what it needs to."""
        device = self._model.device
        inputs = self._model.capture_inputs(budget)
        self._model.forward_graph(inputs)
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        allocated = torch.cuda.memory_allocated(device)
        started = time.perf_counter()
        self._model.forward_graph(inputs)
        torch.cuda.synchronize(device)
        return time.perf_counter() - started, torch.cuda.max_memory_allocated(device) - allocated

    def _capture_one(self, budget: int) -> float:
        """Captures one graph; returns the seconds of its fastest replay."""
        if not self._buffers:
            rows = budget * self._config.output_rows_per_tile
            self._output = torch.empty(
                rows, self._config.output_width, dtype=self._model.dtype, device=self._model.device
            )
            self._buffers = self._model.capture_inputs(budget)
        buffers = {key: value[:budget] for key, value in self._buffers.items()}
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            rows_out = self._model.forward_graph(buffers)
            self._output[: rows_out.shape[0]].copy_(rows_out)
        # Dropped before the next capture: the graph keeps the memory, not the tensor.
        del rows_out
        graph.replay()
        seconds = min(self._time(graph) for _ in range(_TIMED_REPLAYS))
        self._graphs[budget] = graph
        return seconds

    def _time(self, graph: torch.cuda.CUDAGraph) -> float:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) / 1e3
