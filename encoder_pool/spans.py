"""OpenTelemetry spans of a request's stages; all three rooms record theirs with this.

Ray Serve sets tracing up in every replica (`tracing_config` or its environment variables) and opens a span around each
call. A stage is recorded as a child of that one: so nothing is recorded where tracing is off or the request was not
sampled, and a stage never begins a trace of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import propagate, trace

PREFIX = "tessera."

_tracer = trace.get_tracer("tessera")


@contextmanager
def span(stage: str) -> Iterator[None]:
    """Records its block as the span `tessera.<stage>`; calls to other replicas from within it are its children.

    Not around a `yield` of an async generator: the span is the current one of whoever runs the block.
    """
    if not trace.get_current_span().is_recording():
        yield
        return
    with _tracer.start_as_current_span(PREFIX + stage):
        yield


def trace_headers() -> dict[str, str]:
    """The current span, for `continued_span` in another process; empty where nothing is recorded."""
    headers: dict[str, str] = {}
    if trace.get_current_span().is_recording():
        propagate.inject(headers)
    return headers


@contextmanager
def continued_span(stage: str, headers: Mapping[str, str]) -> Iterator[None]:
    """As `span`, below the span of another process that `trace_headers` made `headers` of."""
    if not headers:
        yield
        return
    with _tracer.start_as_current_span(PREFIX + stage, context=propagate.extract(headers)):
        yield


def past_span(stage: str, start_ns: int, stop_ns: int | None = None) -> None:
    """Records a stage after the event, as a child of the current span.

    start_ns, stop_ns: as of `time.time_ns()`; the stop is now by default.
    """
    if trace.get_current_span().is_recording():
        _tracer.start_span(PREFIX + stage, start_time=start_ns).end(stop_ns or time.time_ns())
