"""Where traces go: an exporter for Serve's `tracing_config` (`exporter_import_path: router.tracing:otlp`)."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def otlp() -> list[SpanProcessor]:
    """Sends spans by OTLP over HTTP, to where OpenTelemetry's environment variables (`OTEL_EXPORTER_OTLP_*`) say."""
    return [BatchSpanProcessor(OTLPSpanExporter())]
