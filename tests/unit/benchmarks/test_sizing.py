"""The calculator splits GPUs so that neither pool waits for the other, and says where a split loses."""

from __future__ import annotations

import math

import pytest

from benchmarks.sizing import BUSY, Need, Plan, best_split, encode_ms, gpus_for, monolithic, need_of, wait_ms

MEASURED = {
    "counts": {
        "1": {"tessera graph": {"ms": 3.0}, "vllm eager": {"ms": 30.0}, "vllm graph": {"ms": 5.0}},
        "9": {"tessera graph": {"ms": 19.0}, "vllm eager": {"ms": 35.0}, "vllm graph": {"ms": 41.0}},
        "17": {"tessera graph": {"ms": 35.0}, "vllm eager": {"ms": 45.0}, "vllm graph": {"ms": 82.0}},
    }
}


@pytest.mark.parametrize(("tiles", "ms"), [(1, 3.0), (5, 11.0), (9, 19.0), (17, 35.0), (34, 69.0)])
def test_times_lie_on_a_line_between_and_beyond_the_rows(tiles, ms):
    assert encode_ms(MEASURED, "tessera graph", tiles) == pytest.approx(ms)


def test_an_engine_spreads_a_pictures_tiles_and_takes_its_faster_mode():
    need = need_of(17, pictures=2, decoder_ms=50, decoder_gpus=2, measured=MEASURED)
    assert need == Need(50, ours=2 * 35.0, theirs=2 * 35.0)
    assert need_of(1, 1, 50, 1, MEASURED).theirs == 5.0


def test_encoders_are_added_until_decoders_are_the_bottleneck():
    need = Need(decoder=100, ours=50, theirs=80)
    assert monolithic(3, 1, need) == Plan(0, 3, pytest.approx(BUSY * 3000 / 180))
    assert best_split(3, 1, need) == Plan(1, 2, pytest.approx(BUSY * 20))


def test_no_more_encoders_than_serve_more_requests():
    assert best_split(8, 4, Need(decoder=100, ours=1, theirs=2)).encoders == 1


def test_gpus_for_a_rate():
    need = Need(decoder=100, ours=50, theirs=80)
    # 14 requests a second are 20 busy seconds a second's worth of BUSY: 3.6 engines against 1 encoder and 2 decoders.
    assert gpus_for(14, 2, need) == (2 * 4, 1 + 2 * 2)


def test_a_queue_waits_for_half_a_service_when_busy_by_half():
    assert wait_ms(rate=10, servers=1, service_ms=50) == pytest.approx(25)
    assert wait_ms(rate=20, servers=1, service_ms=50) == math.inf
