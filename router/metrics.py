"""What a Router tells Prometheus, through Ray's metrics (which add deployment, replica and application).

- `tessera_router_requests` (`status`, `code`): chat requests, by the status that was answered and, for a refusal of the
  Router's own, its code.
- `tessera_router_stage_seconds` (`stage`): *fetch*, one picture's bytes; *cut*, its decoding and tiling; *embed*, all
  of a request's pictures, from their parts to their embeddings; *first_chunk*, from the hand-off to the beginning of
  the answer.
- `tessera_router_store_lookups` (`result`): pictures that were kept or being encoded already (*hit*), and others.
- `tessera_router_store_bytes`: bytes of embeddings that are kept.
- `tessera_router_store_evictions`: embeddings that made room for others.
- `tessera_router_retries` (`cause`): decodes begun anew, *decoder_died* or *embedding_lost*.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from ray.serve import metrics

from router.errors import ApiError

Stage = Literal["fetch", "cut", "embed", "first_chunk"]


class RouterMetrics:
    def __init__(self) -> None:
        self._requests = metrics.Counter(
            "tessera_router_requests", "Chat requests, by status and code of the answer.", tag_keys=("status", "code")
        )
        self._stages = metrics.Histogram(
            "tessera_router_stage_seconds",
            "Seconds that a stage of a request took.",
            boundaries=[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60],
            tag_keys=("stage",),
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
        """Measures its block, unless that raises."""
        started = time.perf_counter()
        yield
        self._stages.observe(time.perf_counter() - started, {"stage": name})

    def looked_up(self, hit: bool) -> None:
        self._lookups.inc(1, {"result": "hit" if hit else "miss"})

    def retried(self, cause: Literal["decoder_died", "embedding_lost"]) -> None:
        self._retries.inc(1, {"cause": cause})


class StoreMetrics:
    """Of an embedding store, wherever it lives."""

    def __init__(self) -> None:
        self._bytes = metrics.Gauge("tessera_router_store_bytes", "Bytes of embeddings that are kept.")
        self._evictions = metrics.Counter("tessera_router_store_evictions", "Embeddings that made room for others.")

    def changed(self, nbytes: int, evicted: int) -> None:
        self._bytes.set(nbytes)
        if evicted:
            self._evictions.inc(evicted)
