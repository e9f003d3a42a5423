"""Freed memory goes back to the system though blocks in use lie above it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from encoder_pool import heaps
from encoder_pool.heaps import TRIM_EVERY_S, HeapTrimmer, trim_heaps

BLOCKS, BLOCK = 20_000, 5_000


def resident_bytes() -> int:
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return 1024 * int(line.split()[1])


def test_memory_between_blocks_in_use_goes_back():
    blocks = [bytearray(BLOCK) for _ in range(BLOCKS)]
    del blocks[:-1]
    before = resident_bytes()
    trim_heaps()
    assert resident_bytes() < before - BLOCKS * BLOCK / 2


async def test_heaps_are_trimmed_once_a_while(monkeypatch):
    trims, now = [], 1000.0
    monkeypatch.setattr(heaps, "trim_heaps", lambda: trims.append(now))
    monkeypatch.setattr(heaps, "time", SimpleNamespace(monotonic=lambda: now))
    trimmer = HeapTrimmer()
    did = []
    for seconds in (0, TRIM_EVERY_S - 1, 2, 1, TRIM_EVERY_S):
        now += seconds
        did.append(await trimmer.trim_when_due())
    assert did == [False, False, True, False, True]
    assert trims == [1000.0 + TRIM_EVERY_S + 1, 1000.0 + 2 * TRIM_EVERY_S + 2]
