"""The Serve deployment that encodes tiles: validation, queue, and the order in which results leave."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import AsyncGenerator

import numpy as np
import torch
from ray import serve

from encoder_pool.batcher import TileBatcher
from encoder_pool.fingerprint import fingerprint
from encoder_pool.gauges import keep_set
from encoder_pool.gpu_claim import claim_gpu_of_this_node
from encoder_pool.heaps import HeapTrimmer
from encoder_pool.loading import load_encoder
from encoder_pool.metrics import EncoderMetrics
from encoder_pool.settings import LOAD_SIGNAL, EncoderSettings, ModelSettings
from encoder_pool.spans import past_span
from encoder_pool.wire import EmbeddingMeta, ImageShard

logger = logging.getLogger("ray.serve")


@serve.deployment
class EncoderPool:
    """One replica: the whole vision encoder on one device. Raises CheckpointError where it cannot be loaded."""

    def __init__(self, model: ModelSettings, encoder: EncoderSettings, claims_gpu: bool = False) -> None:
        """claims_gpu: take a GPU that decoders have reserved (see gpu_claim.py)."""
        if claims_gpu:
            logger.info("beside the decoder on GPU %d of this node", claim_gpu_of_this_node())
        device = torch.device("cuda" if encoder.num_gpus or claims_gpu else "cpu")
        if device.type == "cpu":
            # Ray sets the number of threads from num_cpus, which only reserves a share of the scheduler.
            torch.set_num_threads(encoder.cpu_threads or len(os.sched_getaffinity(0)))
        self._heaps = HeapTrimmer()
        self._dtype = model.dtype
        self._fingerprint = fingerprint(model)
        loaded = load_encoder(model, encoder, device)
        self._geometry = loaded.geometry
        # A replica is ready once it has encoded a tile.
        loaded.runner.encode([np.zeros((1, *loaded.geometry.tile_shape), np.uint8)])
        metrics = EncoderMetrics()
        self._encoded_tiles = 0
        self._batcher = TileBatcher(loaded.runner, encoder.max_queued_tiles, metrics.batch, metrics.waited)
        self._gauges = [keep_set(metrics.queued, lambda: self._batcher.queued_tiles)]
        if loaded.capture is not None:
            graph_bytes = loaded.capture.bytes
            self._gauges.append(keep_set(metrics.graph_bytes, lambda: graph_bytes))
            metrics.captured(loaded.capture)

    async def encode(
        self, tiles: np.ndarray, images: list[ImageShard], timeout_s: float = math.inf
    ) -> AsyncGenerator[np.ndarray | EmbeddingMeta, None]:
        """Encodes the tiles of all shards, uint8 [sum of their tiles, channels, tile, tile], in order.

        Yields for each shard one array [tiles * tokens_per_tile, text_width] in the carrier dtype (see wire.py), then
        one EmbeddingMeta. Raises ValueError where the arguments do not fit, QueueFullError, TimeoutError where the
        tiles still wait after `timeout_s`, and NonFiniteEmbeddingsError.
        """
        self._validate(tiles, images)
        rows = await self._batcher.encode(tiles, timeout_s)
        self._encoded_tiles += len(tiles)
        encoded_ns = time.time_ns()
        start = 0
        for image in images:
            stop = start + image.tiles * self._geometry.tokens_per_tile
            yield rows[start:stop]
            start = stop
        # Serve has put an array into the object store once it asks for the next item.
        past_span("store", encoded_ns)
        yield EmbeddingMeta(len(images), self._dtype, self._fingerprint, rows.nbytes // len(tiles), tuple(images))

    def _validate(self, tiles: np.ndarray, images: list[ImageShard]) -> None:
        if not isinstance(tiles, np.ndarray) or tiles.dtype != np.uint8:
            raise ValueError(
                f"tiles must be a numpy array of uint8, not {getattr(tiles, 'dtype', type(tiles).__name__)}"
            )
        if tiles.shape[1:] != self._geometry.tile_shape:
            raise ValueError(f"tiles must have shape [n, *{self._geometry.tile_shape}], not {tiles.shape}")
        counts = [image.tiles for image in images]
        if not counts or min(counts) < 1 or sum(counts) != len(tiles):
            raise ValueError(f"images of {counts} tiles do not add up to the {len(tiles)} tiles that came")

    def stats(self) -> dict[str, int]:
        """encoded_tiles: of requests answered since the start; queued_tiles: that wait."""
        return {"encoded_tiles": self._encoded_tiles, "queued_tiles": self._batcher.queued_tiles}

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What Serve's autoscaler is told: tiles that wait or are being encoded."""
        return {LOAD_SIGNAL: self._batcher.outstanding_tiles}

    async def check_health(self) -> None:
        """Raises once the encoder fails on whatever it is given: Serve then replaces the replica."""
        if self._batcher.failure is not None:
            raise RuntimeError("encoding failed") from self._batcher.failure
        await self._heaps.trim_when_due()
