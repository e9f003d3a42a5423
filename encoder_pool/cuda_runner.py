"""Runs an encoder on a CUDA device: graphs for the arithmetic, copies that overlap it.

Batches go through two slots. While one is computed, the next one's tiles are copied to the device and the previous
one's embeddings back, each on a stream of its own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from encoder_pool.graphs import GraphManager
from encoder_pool.protocol import GraphableEncoder
from encoder_pool.runner import EncodedBatch, carrier

_SLOTS = 2


class _Slot:
    """Staging buffers of one batch: pinned and device input, device output and its finiteness by tile."""

    def __init__(self, model: GraphableEncoder, tiles: int) -> None:
        config = model.graph_config()
        self.device_in = model.capture_inputs(tiles)[config.input_keys[0]]
        self.pinned_in = torch.empty_like(self.device_in, device="cpu", pin_memory=True)
        rows = tiles * config.output_rows_per_tile
        self.device_out = torch.empty(rows, config.output_width, dtype=model.dtype, device=model.device)
        self.copied_in, self.computed, self.copied_out = (torch.cuda.Event() for _ in range(3))


class CudaRunner:
    """Implements Runner (see runner.py) for models with one input."""

    # One batch computes while the next one is staged.
    concurrency = _SLOTS

    def __init__(self, model: GraphableEncoder, graphs: GraphManager, batch_tiles: int) -> None:
        self.batch_tiles = batch_tiles
        self._model = model
        self._graphs = graphs
        self._slots: queue.SimpleQueue[_Slot] = queue.SimpleQueue()
        for _ in range(_SLOTS):
            self._slots.put(_Slot(model, batch_tiles))
        self._copy_in, self._compute, self._copy_out = (torch.cuda.Stream(model.device) for _ in range(3))
        self._order = threading.Lock()

    def encode(self, items: Sequence[np.ndarray]) -> EncodedBatch:
        config = self._model.graph_config()
        bounds = np.cumsum([0] + [len(item) for item in items]).tolist()
        total = bounds[-1]
        # From PyTorch's cache of pinned memory, to which it returns when the last array that views it is gone.
        rows = torch.empty(
            total * config.output_rows_per_tile, config.output_width, dtype=self._model.dtype, pin_memory=True
        )
        finite = torch.empty(total, dtype=torch.bool, pin_memory=True)
        starts = range(0, total, self.batch_tiles)
        copied = [self._enqueue(items, bounds, start, rows, finite) for start in starts]
        for event in copied:
            event.synchronize()
        per_tile = finite.numpy()
        sections = [(a * config.output_rows_per_tile, b * config.output_rows_per_tile) for a, b in pairwise(bounds)]
        carried = carrier(rows)
        steps = [step for start in starts for step in self._graphs.plan(min(self.batch_tiles, total - start))]
        return EncodedBatch(
            [carried[a:b] for a, b in sections],
            [bool(per_tile[a:b].all()) for a, b in pairwise(bounds)],
            padding=sum(step.budget - step.tiles for step in steps if step.budget is not None),
            eager=sum(step.tiles for step in steps if step.budget is None),
        )

    def _enqueue(
        self, items: Sequence[np.ndarray], bounds: Sequence[int], start: int, rows: torch.Tensor, finite: torch.Tensor
    ) -> torch.cuda.Event:
        """Starts the tiles [start, start + batch_tiles) of the batch; returns what tells that they are in `rows`."""
        stop = min(start + self.batch_tiles, bounds[-1])
        tiles = stop - start
        per_tile = self._model.graph_config().output_rows_per_tile
        slot = self._slots.get()
        slot.copied_out.synchronize()
        pinned = slot.pinned_in.numpy()
        for item, (a, b) in zip(items, pairwise(bounds), strict=True):
            first, last = max(a, start), min(b, stop)
            if first < last:
                np.copyto(pinned[first - start : last - start], item[first - a : last - a])
        # A new one each time: whoever waits for this batch must not wait for the slot's next one.
        slot.copied_out = torch.cuda.Event()
        with self._order, torch.inference_mode():
            with torch.cuda.stream(self._copy_in):
                slot.device_in[:tiles].copy_(slot.pinned_in[:tiles], non_blocking=True)
                slot.copied_in.record()
            with torch.cuda.stream(self._compute):
                self._compute.wait_event(slot.copied_in)
                output = slot.device_out[: tiles * per_tile]
                self._graphs.run({self._model.graph_config().input_keys[0]: slot.device_in[:tiles]}, output)
                # One pass over the output; NaN propagates through aminmax.
                low, high = output.view(tiles, -1).aminmax(dim=1)
                tile_is_finite = torch.isfinite(low) & torch.isfinite(high)
                slot.computed.record()
            with torch.cuda.stream(self._copy_out):
                self._copy_out.wait_event(slot.computed)
                rows[start * per_tile : stop * per_tile].copy_(output, non_blocking=True)
                finite[start:stop].copy_(tile_is_finite, non_blocking=True)
                tile_is_finite.record_stream(self._copy_out)
                slot.copied_out.record()
        done = slot.copied_out
        self._slots.put(slot)
        return done
