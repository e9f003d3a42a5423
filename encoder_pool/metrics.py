"""What a replica tells Prometheus, through Ray's metrics (which add deployment, replica and application)."""

from __future__ import annotations

from ray.serve import metrics

from encoder_pool.graphs import CaptureReport
from encoder_pool.runner import EncodedBatch

SECONDS = [0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]


class EncoderMetrics:
    def __init__(self) -> None:
        self.queued = metrics.Gauge("tessera_encoder_queued_tiles", "Tiles that wait in this replica.")
        self._encoded = metrics.Counter("tessera_encoder_encoded_tiles", "Tiles of requests that were encoded.")
        self._padding = metrics.Counter("tessera_encoder_padding_tiles", "Zero tiles computed to fill a graph.")
        self._eager = metrics.Counter("tessera_encoder_eager_tiles", "Tiles that were encoded without a graph.")
        self._failed_graphs = metrics.Counter(
            "tessera_encoder_failed_graphs", "Graphs that could not be captured at start."
        )
        self.graph_bytes = metrics.Gauge("tessera_encoder_graph_bytes", "GPU memory of the graphs and their buffers.")
        self._seconds = metrics.Histogram(
            "tessera_encoder_batch_seconds",
            "Time from taking a batch out of the queue until its embeddings are in host memory.",
            boundaries=SECONDS,
        )
        self._wait = metrics.Histogram(
            "tessera_encoder_queue_seconds", "Time that a call's tiles waited for a batch to take them.", SECONDS
        )
        self._occupancy = metrics.Histogram(
            "tessera_encoder_batch_tiles", "Tiles of a batch.", boundaries=[1, 2, 4, 8, 16, 17, 34, 51, 64]
        )

    def captured(self, report: CaptureReport) -> None:
        if report.failed:
            self._failed_graphs.inc(len(report.failed))

    def waited(self, seconds: float) -> None:
        self._wait.observe(seconds)

    def batch(self, encoded: EncodedBatch, tiles: int, seconds: float) -> None:
        self._seconds.observe(seconds)
        self._occupancy.observe(tiles)
        # Ray's counters refuse an increment of zero.
        for counter, value in ((self._encoded, tiles), (self._padding, encoded.padding), (self._eager, encoded.eager)):
            if value:
                counter.inc(value)
