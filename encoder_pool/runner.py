"""Runs an encoder on batches of tiles. Knows no model and no Serve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch

from encoder_pool.protocol import GraphableEncoder


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """rows: for each item, in order, the carrier array [tiles * rows_per_tile, width] (see wire.py).

    finite: for each item, whether all its values are.
    padding: zero tiles that were computed beside the batch's own; eager: tiles that went through no graph.
    """

    rows: list[np.ndarray]
    finite: list[bool]
    padding: int
    eager: int


class Runner(Protocol):
    """batch_tiles: how many tiles a batch should hold at most; more are encoded all the same.

    concurrency: how many threads may be inside `encode` at a time.
    """

    batch_tiles: int
    concurrency: int

    def encode(self, items: Sequence[np.ndarray]) -> EncodedBatch:
        """Encodes items of uint8 [tiles, channels, tile, tile], each at least one tile. Blocks."""
        ...


def carrier(rows: torch.Tensor) -> np.ndarray:
    """A CPU tensor of embeddings as the numpy array that carries it, without a copy."""
    return (rows.view(torch.uint16) if rows.dtype == torch.bfloat16 else rows).numpy()


class EagerRunner:
    """Encodes on the model's device without graphs, a few tiles at a time, so that activations stay small."""

    batch_tiles = 64
    concurrency = 1

    def __init__(self, model: GraphableEncoder, chunk_tiles: int = 8) -> None:
        self._model = model
        self._chunk_tiles = chunk_tiles

    def encode(self, items: Sequence[np.ndarray]) -> EncodedBatch:
        model, config = self._model, self._model.graph_config()
        # numpy's concatenate copies even a single item: arrays from the object store are read-only.
        batch = {config.input_keys[0]: torch.from_numpy(np.concatenate(items))}
        bounds = np.cumsum([0] + [len(item) for item in items]).tolist()
        specs = [model.item_spec(model.select(batch, a, b)) for a, b in pairwise(bounds)]
        chunks = []
        for start in range(0, bounds[-1], self._chunk_tiles):
            chunk = model.select(batch, start, min(start + self._chunk_tiles, bounds[-1]))
            chunk = {key: value.to(model.device) for key, value in chunk.items()}
            chunks.append(model.forward_eager(chunk).cpu())
        rows = model.split_output(torch.cat(chunks), specs)
        finite = [bool(torch.isfinite(r).all()) for r in rows]
        return EncodedBatch([carrier(r) for r in rows], finite, padding=0, eager=bounds[-1])
