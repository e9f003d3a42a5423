"""CUDA graphs of an encoder: capture at start, and replay of the cheapest set of them for each batch.

Every graph of a manager reads the same input buffers and writes the same output buffer, and all share one memory
pool: they are replayed one after the other on one stream. The largest is captured first, so that the smaller ones
find their memory in the pool.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from encoder_pool.packing import Costs, Packer, Step
from encoder_pool.protocol import GraphableEncoder, Inputs

logger = logging.getLogger(__name__)

_TIMED_REPLAYS = 3


@dataclass(slots=True)
class CaptureReport:
    """What became of the wanted budgets.

    captured, failed: budgets in tiles; over_limit: those whose memory would exceed the limit.
    seconds: of the whole capture; bytes: device memory that the graphs and their buffers hold.
    """

    captured: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    over_limit: list[int] = field(default_factory=list)
    seconds: float = 0.0
    bytes: int = 0


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
        self._packer = Packer(Costs({}, {1: 0.0}))

    def capture(self, budgets: Sequence[int], max_bytes: int) -> CaptureReport:
        """Captures a graph for each budget (in tiles) and measures it.

        A budget that does not fit into `max_bytes` of device memory is left out. One that fails, for want of memory
        or for another reason, is left out with a warning; without any graph left, everything runs eagerly.
        """
        started, report = time.monotonic(), CaptureReport()
        free_before = torch.cuda.mem_get_info(self._model.device)[0]
        pool = torch.cuda.graph_pool_handle()
        graph_seconds: dict[int, float] = {}
        eager_seconds: dict[int, float] = {}
        reasons: dict[int, str] = {}
        for budget in sorted(budgets, reverse=True):
            try:
                seconds, peak_bytes = self._measure_eager(budget)
                eager_seconds[budget] = seconds
                if peak_bytes > max_bytes:
                    report.over_limit.append(budget)
                    continue
                graph_seconds[budget] = self._capture_one(budget, pool)
                report.captured.append(budget)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                report.failed.append(budget)
                reasons[budget] = str(error).splitlines()[0]
                self._graphs.pop(budget, None)
                torch.cuda.empty_cache()
            logger.info("encoder graphs: %d of %d budgets done", len(graph_seconds), len(budgets))
        if report.failed:
            logger.warning("no encoder graph for %s tiles: %s", report.failed, reasons[report.failed[0]])
        # Where not even an eager run could be measured, one tile at a time is the best guess.
        self._packer = Packer(Costs(graph_seconds, eager_seconds or {1: 0.0}))
        report.seconds = time.monotonic() - started
        report.bytes = free_before - torch.cuda.mem_get_info(self._model.device)[0]
        return report

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

    def cost(self, tiles: int) -> float:
        """Seconds that a batch of this size takes on the device, by what was measured at capture."""
        return self._packer.cost(tiles)

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

    def _capture_one(self, budget: int, pool: tuple[int, int]) -> float:
        """Captures one graph; returns the seconds of its fastest replay."""
        if not self._buffers:
            self._buffers = self._model.capture_inputs(budget)
            rows = budget * self._config.output_rows_per_tile
            self._output = torch.empty(
                rows, self._config.output_width, dtype=self._model.dtype, device=self._model.device
            )
            # What the eager runs left in the allocator's cache is of no use to the graphs' own pool.
            torch.cuda.empty_cache()
        buffers = {key: value[:budget] for key, value in self._buffers.items()}
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            rows_out = self._model.forward_graph(buffers)
            self._output[: rows_out.shape[0]].copy_(rows_out)
        # Dropped before the next capture: the graph keeps the memory, not the tensor.
        del rows_out
        self._graphs[budget] = graph
        graph.replay()
        return min(self._time(graph) for _ in range(_TIMED_REPLAYS))

    def _time(self, graph: torch.cuda.CUDAGraph) -> float:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) / 1e3
