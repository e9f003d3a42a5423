from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from benchmarks.spans import read_trace
from router.tracing import FOLDER, files, otlp


def test_serve_gets_span_processors(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    processors = otlp()
    assert [type(processor) for processor in processors] == [BatchSpanProcessor]
    for processor in processors:
        processor.shutdown()


def test_spans_written_to_files_are_read_by_the_timeline(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER, str(tmp_path / "spans"))
    provider = TracerProvider()
    for processor in files():
        provider.add_span_processor(processor)
    with provider.get_tracer("test").start_as_current_span("tessera.encode") as span:
        trace_id = f"{span.get_span_context().trace_id:032x}"
    provider.shutdown()
    assert [span.name for span in read_trace(tmp_path / "spans", trace_id)] == ["tessera.encode"]
