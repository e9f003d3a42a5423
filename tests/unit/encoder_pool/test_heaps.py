"""Freed memory goes back to the system though blocks in use lie above it."""

from __future__ import annotations

from pathlib import Path

from encoder_pool.heaps import trim_heaps

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
