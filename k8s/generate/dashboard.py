"""Writes the Grafana dashboard of the chart: `python -m k8s.generate.dashboard`.

A row for each stage of a request: clients, encoders, hand-off, decoders, and the object store that caches what lies
between them. Only metrics that a running application exports: its own (the `metrics.py` of each room,
whose names Ray prefixes with `ray_`), Ray Serve's and the raylets'.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).parents[1] / "tessera" / "dashboards" / "tessera.json"
COLUMNS, HEIGHT, PER_ROW = 24, 8, 3
# Series of one release; outside Kubernetes there is no such label, which `.*` matches too.
RELEASE = 'release=~"$release"'


@dataclass(frozen=True)
class Panel:
    """One graph. queries: (PromQL expression, legend); unit: Grafana's name of it."""

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def rate(metric: str, *labels: str, by: str = "") -> str:
    """Sum of the rates of a counter's series, a second."""
    selector = ",".join((RELEASE, *labels))
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{{{selector}}}[$__rate_interval]))"


def quantile(q: float, histogram: str, *labels: str, by: str = "") -> str:
    """A quantile of a histogram over the interval."""
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', *labels, by=','.join(filter(None, ('le', by))))})"


def mean(histogram: str, *labels: str) -> str:
    """The average over the interval."""
    return f"{rate(f'{histogram}_sum', *labels)} / {rate(f'{histogram}_count', *labels)}"


def total(gauge: str, *labels: str, by: str) -> str:
    return f"sum by ({by}) ({gauge}{{{','.join((RELEASE, *labels))}}})"


def percentiles(histogram: str, *labels: str) -> tuple[tuple[str, str], ...]:
    return tuple((quantile(q, histogram, *labels), f"p{q * 100:g}") for q in (0.5, 0.9, 0.99))


CHAT = 'route="/v1/chat/completions"'
ENCODER, DECODER = 'deployment="EncoderPool"', 'deployment="LLMPool"'
POOLS = 'deployment=~"EncoderPool|LLMPool"'
ENCODED = rate("ray_tessera_encoder_encoded_tiles_total")
PADDING = rate("ray_tessera_encoder_padding_tiles_total")
EAGER = rate("ray_tessera_encoder_eager_tiles_total")
LATENCY = "ray_serve_http_request_latency_ms"
STAGES = "ray_tessera_router_stage_seconds"
LLM_STAGES = "ray_tessera_llm_stage_seconds"
LOOKUPS = rate("ray_tessera_router_store_lookups_total")
HITS = rate("ray_tessera_router_store_lookups_total", 'result="hit"')
FULFILLMENT = "ray_serve_request_router_fulfillment_time_ms"

ROWS: dict[str, tuple[Panel, ...]] = {
    "Clients": (
        Panel(
            "Requests by status",
            "Chat requests that were answered; a refusal says its code.",
            "reqps",
            ((rate("ray_tessera_router_requests_total", by="status,code"), "{{status}} {{code}}"),),
        ),
        Panel(
            "Duration of a request",
            "From the request to the last byte of its answer, so it grows with the length of the answers.",
            "ms",
            percentiles(LATENCY, CHAT),
        ),
        Panel(
            "Time to the beginning of an answer, p99",
            "From a request's body to its first chunk; to its end where it is not streamed.",
            "s",
            (
                (
                    quantile(0.99, "ray_tessera_router_ttft_seconds", by="kind"),
                    "{{kind}}",
                ),
            ),
        ),
        Panel(
            "Where that time goes, on average",
            "A picture's way: its bytes, its tiles, its embedding, the hand-off, vLLM's intake, the first token.",
            "s",
            (
                *((mean(STAGES, f'stage="{stage}"'), stage) for stage in ("fetch", "cut", "encode", "hand_off")),
                *(
                    (mean(LLM_STAGES, f'stage="{stage}"'), stage)
                    for stage in ("arrive", "rebuild", "intake", "prefill")
                ),
            ),
        ),
        Panel(
            "Requests at work",
            "Requests that the HTTP proxies have not answered yet.",
            "short",
            ((total("ray_serve_num_ongoing_http_requests", by="group"), "{{group}}"),),
        ),
        Panel(
            "Pictures: fetch and cut, p99",
            "One picture's bytes, and its decoding and tiling: the first is the web's, the second the Routers' CPUs.",
            "s",
            tuple((quantile(0.99, STAGES, f'stage="{stage}"'), stage) for stage in ("fetch", "cut")),
        ),
        Panel(
            "Pictures: embeddings",
            "All of a request's pictures, from their parts to their embeddings.",
            "s",
            percentiles(STAGES, 'stage="embed"'),
        ),
        Panel(
            "First chunk",
            "From the hand-off to a decoder until the answer begins.",
            "s",
            percentiles(STAGES, 'stage="first_chunk"'),
        ),
    ),
    "Encoders": (
        Panel(
            "Tiles a second",
            "Tiles of requests that were encoded; a busy GPU's figure tells how many encoders a load needs.",
            "short",
            ((rate("ray_tessera_encoder_encoded_tiles_total", by="replica"), "{{replica}}"),),
        ),
        Panel(
            "Tiles that wait",
            "Queue of each replica. Growing while all replicas work: add encoders.",
            "short",
            ((total("ray_tessera_encoder_queued_tiles", by="replica"), "{{replica}}"),),
        ),
        Panel(
            "Time in the queue",
            "How long a call's tiles waited for a batch.",
            "s",
            percentiles("ray_tessera_encoder_queue_seconds"),
        ),
        Panel(
            "Time of a batch",
            "From leaving the queue until the embeddings are in host memory.",
            "s",
            percentiles("ray_tessera_encoder_batch_seconds"),
        ),
        Panel(
            "Share of padding and of eager tiles",
            "Zero tiles that filled graphs, and tiles that ran without one, of the tiles encoded.",
            "percentunit",
            (
                (f"{PADDING} / ({ENCODED} + {PADDING})", "padding"),
                (f"{EAGER} / {ENCODED}", "eager"),
            ),
        ),
        Panel(
            "Graphs that failed",
            "Captures that failed at a replica's start; it then serves those sizes with fewer graphs, or eagerly.",
            "short",
            ((total("ray_tessera_encoder_failed_graphs_total", by="replica"), "{{replica}}"),),
        ),
        Panel(
            "Requests in a replica",
            "Encodes that a replica has accepted and not finished.",
            "short",
            ((total("ray_serve_replica_processing_queries", ENCODER, by="replica"), "{{replica}}"),),
        ),
    ),
    "Hand-off": (
        Panel(
            "Waiting for a replica",
            "Calls of the Routers that no replica has accepted yet.",
            "short",
            ((total("ray_serve_deployment_queued_queries", POOLS, by="deployment"), "{{deployment}}"),),
        ),
        Panel(
            "Time until a replica accepts, p99",
            "From a Router's call until a replica of the pool has taken it.",
            "ms",
            ((quantile(0.99, FULFILLMENT, POOLS, by="deployment"), "{{deployment}}"),),
        ),
        Panel(
            "Bytes between nodes",
            "Objects (tiles to encoders, embeddings to decoders) that a node's object store received from another.",
            "Bps",
            ((rate("ray_object_manager_bytes", 'Type="Received"', by="group"), "{{group}}"),),
        ),
        Panel(
            "Retries",
            "Decodes begun anew because a decoder died or an embedding was lost; clients do not see them.",
            "short",
            ((rate("ray_tessera_router_retries_total", by="cause"), "{{cause}}"),),
        ),
    ),
    "Decoders": (
        Panel(
            "Requests in a replica",
            "Requests that an engine runs or holds in its own queue.",
            "short",
            ((total("ray_serve_replica_processing_queries", DECODER, by="replica"), "{{replica}}"),),
        ),
        Panel(
            "Duration of an answer",
            "From a decoder's acceptance of a request to its last chunk.",
            "ms",
            percentiles("ray_serve_deployment_processing_latency_ms", DECODER),
        ),
        Panel(
            "Answers a second",
            "Requests that each engine finished.",
            "reqps",
            ((rate("ray_serve_deployment_request_counter_total", DECODER, by="replica"), "{{replica}}"),),
        ),
    ),
    "Cache and object store": (
        Panel(
            "Pictures seen before",
            "Share of pictures whose embedding was kept, or being computed for another request.",
            "percentunit",
            ((f"{HITS} / {LOOKUPS}", "hits"),),
        ),
        Panel(
            "Embeddings kept",
            "What is in use of router.embedding_store_bytes.",
            "bytes",
            ((total("ray_tessera_router_store_bytes", by="replica"), "{{replica}}"),),
        ),
        Panel(
            "In shared memory",
            "Tiles and embeddings that are held or on their way.",
            "bytes",
            ((total("ray_object_store_used_memory", by="group"), "{{group}}"),),
        ),
        Panel(
            "Still free",
            "What is left of a group's object stores; none left means spilling.",
            "bytes",
            ((total("ray_object_store_available_memory", by="group"), "{{group}}"),),
        ),
        Panel(
            "Spilled to disk",
            "Must be zero: raise groups.*.objectStoreGiB where it is not.",
            "bytes",
            ((total("ray_spill_manager_objects_bytes", 'State="Spilled"', by="group"), "{{group}}"),),
        ),
    ),
    "Replicas": (
        Panel(
            "Healthy replicas",
            "Replicas that answered their last health check.",
            "short",
            ((total("ray_serve_deployment_replica_healthy", by="deployment"), "{{deployment}}"),),
        ),
        Panel(
            "Starts of replicas",
            "Each is a scale-up, an update, or the replacement of a dead replica.",
            "short",
            ((rate("ray_serve_deployment_replica_starts_total", by="deployment"), "{{deployment}}"),),
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row, graphs in ROWS.items():
        panels.append(
            {"type": "row", "title": row, "collapsed": False, "panels": [], "gridPos": _place(0, y, COLUMNS, 1)}
        )
        width = COLUMNS // PER_ROW
        for index, graph in enumerate(graphs):
            place = _place(index % PER_ROW * width, y + 1 + index // PER_ROW * HEIGHT, width, HEIGHT)
            panels.append(_graph(graph, place))
        y += 1 + -(-len(graphs) // PER_ROW) * HEIGHT
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number
    return {
        "title": "Tessera",
        "uid": "tessera",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "tags": ["tessera", "ray", "vllm"],
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_datasource(), _release()]},
        "panels": panels,
    }


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _graph(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "gridPos": place,
        "targets": [
            {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend}
            for index, (expression, legend) in enumerate(panel.queries)
        ],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _release() -> dict[str, Any]:
    return {
        "name": "release",
        "label": "Release",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "query": "label_values(ray_serve_deployment_replica_healthy, release)",
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def main() -> None:
    DASHBOARD.write_text(json.dumps(dashboard(), indent=2) + "\n")


if __name__ == "__main__":
    main()
