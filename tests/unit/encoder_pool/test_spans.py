"""A stage is a child of the span around it, and nothing without one."""

from __future__ import annotations

import time

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from encoder_pool import spans


@pytest.fixture
def tracing(monkeypatch):
    """(a tracer of Serve's, what was exported)."""
    provider, exported = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    monkeypatch.setattr(spans, "_tracer", provider.get_tracer("tessera"))
    return provider.get_tracer("serve"), exported


def test_without_a_span_around_it_nothing_is_recorded(tracing):
    with spans.span("fetch"):
        spans.past_span("queue", time.time_ns())
        assert spans.trace_headers() == {}
    with spans.continued_span("shared_encode", {}):
        pass
    assert tracing[1].get_finished_spans() == ()


def test_stages_are_children(tracing):
    tracer, exported = tracing
    with tracer.start_as_current_span("call") as call, spans.span("fetch"):
        spans.past_span("queue", 1_000, 2_000)
    queue, fetch, _ = exported.get_finished_spans()
    assert (fetch.name, fetch.parent.span_id) == ("tessera.fetch", call.get_span_context().span_id)
    assert (queue.name, queue.parent.span_id) == ("tessera.queue", fetch.get_span_context().span_id)
    assert (queue.start_time, queue.end_time) == (1_000, 2_000)


def test_another_process_goes_on_with_a_trace(tracing):
    tracer, exported = tracing
    with tracer.start_as_current_span("call") as call:
        headers = spans.trace_headers()
    with spans.continued_span("shared_encode", headers), spans.span("encode_call"):
        pass
    _, encode_call, shared_encode = exported.get_finished_spans()
    assert shared_encode.parent.span_id == call.get_span_context().span_id
    assert encode_call.parent.span_id == shared_encode.context.span_id
    assert {span.context.trace_id for span in (encode_call, shared_encode)} == {call.get_span_context().trace_id}
