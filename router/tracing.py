"""Where traces go: exporters for Serve's `tracing_config` (`exporter_import_path: router.tracing:otlp`)."""

from __future__ import annotations

import os
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

FOLDER = "TESSERA_SPANS"
WRITE_EVERY_MS = 200


def otlp() -> list[SpanProcessor]:
    """Sends spans by OTLP over HTTP, to where OpenTelemetry's environment variables (`OTEL_EXPORTER_OTLP_*`) say."""
    return [BatchSpanProcessor(OTLPSpanExporter())]


def files() -> list[SpanProcessor]:
    """Writes spans as JSON, each process to a file of its own, into the folder that the variable TESSERA_SPANS names.

    Serve's own exporter to files writes each span when it ends, which makes the stages of a request longer.
    """
    folder = Path(os.environ[FOLDER])
    folder.mkdir(parents=True, exist_ok=True)
    out = (folder / f"{os.getpid()}.json").open("a")
    return [BatchSpanProcessor(ConsoleSpanExporter(out=out), schedule_delay_millis=WRITE_EVERY_MS)]
