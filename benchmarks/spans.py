"""Reads spans that processes wrote to files of a folder, as JSON: Ray Serve's exporter, or router.tracing:files."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Span:
    """name: e.g. "tessera.encode"; start, stop: seconds since the epoch; parent: id of another span, or None."""

    name: str
    id: str
    parent: str | None
    start: float
    stop: float
    attributes: dict[str, Any]


def new_trace() -> tuple[str, str]:
    """(trace id, value of the header `traceparent`): a request that carries it is traced at any sampling ratio."""
    trace_id = secrets.token_hex(16)
    return trace_id, f"00-{trace_id}-{secrets.token_hex(8)}-01"


def read_trace(folder: Path, trace_id: str) -> list[Span]:
    """The spans of one trace, by start; of every process that wrote to `folder`."""
    found = [span for path in folder.glob("*.json") for span in _spans(path.read_text(), trace_id)]
    return sorted(found, key=lambda span: span.start)


def _spans(text: str, trace_id: str) -> Iterator[Span]:
    # One indented JSON object after the other; the last may still be being written.
    position = text.find("{")
    while position >= 0:
        try:
            raw, end = _DECODER.raw_decode(text, position)
        except json.JSONDecodeError:
            return
        if raw["context"]["trace_id"] == f"0x{trace_id}":
            yield Span(
                raw["name"],
                raw["context"]["span_id"],
                raw["parent_id"],
                _seconds(raw["start_time"]),
                _seconds(raw["end_time"]),
                raw["attributes"],
            )
        position = text.find("{", end)


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
