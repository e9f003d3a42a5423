"""Stages of traced requests, put in order and averaged."""

from __future__ import annotations

import pytest

from benchmarks.spans import Span
from benchmarks.timeline import WHOLE_ENCODE, hand_off, medians, stages

SENT = 1000.0


def spans(shift: float) -> list[Span]:
    times = {
        "proxy_http_request": (0.001, 0.9),
        "tessera.encode": (0.010, 0.060),
        "tessera.queue": (0.020, 0.021),
        "tessera.encode ": (0.021, 0.050),
        "tessera.intake": (0.070, 0.075),
    }
    return [
        Span(name.strip(), name, None, SENT + shift + start, SENT + shift + stop, {})
        for name, (start, stop) in times.items()
    ]


def test_the_routers_encode_and_the_encoders_are_two_stages():
    found = stages(spans(0.0), SENT)
    assert list(found) == [WHOLE_ENCODE, "queue", "encode", "intake"]
    assert found["encode"] == pytest.approx((21, 50))
    assert found[WHOLE_ENCODE] == pytest.approx((10, 60))


def test_the_hand_off_ends_where_the_engine_has_the_request():
    assert hand_off(stages(spans(0.0), SENT)) == pytest.approx(25)


def test_medians_are_of_begins_and_ends():
    found = medians([stages(spans(shift), SENT) for shift in (0.0, 0.002, 0.5)])
    assert found["intake"] == pytest.approx((72, 77))
    assert list(found) == [WHOLE_ENCODE, "queue", "encode", "intake"]
