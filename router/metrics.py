"""What a Router tells Prometheus, through Ray's metrics (which add deployment, replica and application).

- `tessera_router_requests` (`status`, `code`): chat requests, by the status that was answered and, for a refusal of the
  Router's own, its code.
- `tessera_router_ttft_seconds` (`kind`): from a chat request's body to the beginning of its answer, *text* or *image*;
  of a whole answer, to its end.
- `tessera_router_stage_seconds` (`stage`): *fetch*, one picture's bytes; *cut*, its decoding and tiling; *encode*, from
  there until all of a request's embeddings exist; *embed*, these three, for all pictures of a request;
  *first_chunk*, from the call of a decoder, which may come before the embeddings, to the beginning of its answer;
  *hand_off*, the part of it that the decoder did not have the request: on its way there, the answer on its way back.
- `tessera_router_store_lookups` (`result`): pictures that were kept or being encoded already (*hit*), and others.
- `tessera_router_store_bytes`: bytes of embeddings that are kept.
- `tessera_router_store_evictions`: embeddings that made room for others.
- `tessera_router_retries` (`cause`): decodes begun anew, *decoder_died* or *embedding_lost*.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from ray.serve import metrics

from encoder_pool.gauges import keep_set
from encoder_pool.spans import span
from router.errors import ApiError

Stage = Literal["fetch", "cut", "encode", "embed", "first_chunk"]
SECONDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60]


class RouterMetrics:
    def __init__(self) -> None:
        self._requests = metrics.Counter(
            "tessera_router_requests", "Chat requests, by status and code of the answer.", tag_keys=("status", "code")
        )
        self._stages = metrics.Histogram(
            "tessera_router_stage_seconds",
            "Seconds that a stage of a request took.",
            boundaries=SECONDS,
            tag_keys=("stage",),
        )
        self._ttft = metrics.Histogram(
            "tessera_router_ttft_seconds",
            "Seconds from a chat request's body to the beginning of its answer.",
            boundaries=SECONDS,
            tag_keys=("kind",),
        )
        self._lookups = metrics.Counter(
            "tessera_router_store_lookups", "Pictures looked up in the embedding store.", tag_keys=("result",)
        )
        self._retries = metrics.Counter("tessera_router_retries", "Decodes begun anew, by cause.", tag_keys=("cause",))

    def answered(self, status: int, code: str) -> None:
        self._requests.inc(1, {"status": str(status), "code": code})

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Counts the ApiError that its block raises."""
        try:
            yield
        except ApiError as error:
            self.answered(error.status, error.code or "")
            raise

    @contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        """Measures its block, unless that raises; the block is a span too."""
        started = time.perf_counter()
        with span(name):
            yield
        self._stages.observe(time.perf_counter() - started, {"stage": name})

    def handed_off(self, seconds: float) -> None:
        self._stages.observe(seconds, {"stage": "hand_off"})

    def began(self, kind: Literal["text", "image"], seconds: float) -> None:
        self._ttft.observe(seconds, {"kind": kind})

    def looked_up(self, hit: bool) -> None:
        self._lookups.inc(1, {"result": "hit" if hit else "miss"})

    def retried(self, cause: Literal["decoder_died", "embedding_lost"]) -> None:
        self._retries.inc(1, {"cause": cause})


class StoreMetrics:
    """Of an embedding store, wherever it lives."""

    def __init__(self) -> None:
        self._bytes = metrics.Gauge("tessera_router_store_bytes", "Bytes of embeddings that are kept.")
        self._evictions = metrics.Counter("tessera_router_store_evictions", "Embeddings that made room for others.")
        self._kept = 0
        self._task: asyncio.Task[None] | None = None

    def changed(self, nbytes: int, evicted: int) -> None:
        self._kept = nbytes
        self._task = self._task or keep_set(self._bytes, lambda: self._kept)
        if evicted:
            self._evictions.inc(evicted)
