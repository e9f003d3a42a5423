"""What a decoder tells Prometheus beside vLLM's own metrics (Ray adds deployment, replica and application)."""

from __future__ import annotations

import time
from typing import Literal

from ray.serve import metrics

from encoder_pool.spans import past_span

Stage = Literal["arrive", "rebuild", "intake", "prefill", "answer"]


class DecoderMetrics:
    def __init__(self) -> None:
        self._stages = metrics.Histogram(
            "tessera_llm_stage_seconds",
            "Seconds that a stage of a request took in a decoder.",
            boundaries=[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60],
            tag_keys=("stage",),
        )

    def stage(self, name: Stage, start_ns: int, stop_ns: int | None = None) -> None:
        """A stage that is over, now by default; times are those of `time.time_ns()`. It becomes a span too."""
        stop_ns = stop_ns or time.time_ns()
        self._stages.observe((stop_ns - start_ns) / 1e9, {"stage": name})
        past_span(name, start_ns, stop_ns)
