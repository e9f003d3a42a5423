from opentelemetry.sdk.trace.export import BatchSpanProcessor

from router.tracing import otlp


def test_serve_gets_span_processors(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    processors = otlp()
    assert [type(processor) for processor in processors] == [BatchSpanProcessor]
    for processor in processors:
        processor.shutdown()
