"""Freed memory goes back to the system though blocks in use lie above it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from encoder_pool import heaps
from encoder_pool.heaps import MAPPED_BYTES, TRIM_EVERY_S, HeapTrimmer, keep_heaps_few, trim_heaps

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


IN_A_CHILD = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
# Without a limit glibc would from here on take blocks of this size from its heaps.
libc.free(libc.malloc(8 * int(sys.argv[1])))
block = libc.malloc(int(sys.argv[1]))
print(sum("[heap]" in line and int(line[:12], 16) <= block < int(line[13:25], 16) for line in open("/proc/self/maps")))
"""


@pytest.fixture
def unset(monkeypatch):
    """No option is set in the environment, and none afterwards."""
    for variable in ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)


def test_large_blocks_of_processes_started_later_lie_apart(unset):
    command = [sys.executable, "-c", IN_A_CHILD, str(MAPPED_BYTES)]
    assert subprocess.check_output(command, text=True) == "1\n"
    keep_heaps_few()
    assert subprocess.check_output(command, text=True) == "0\n"


def test_what_the_user_set_stays(unset, monkeypatch):
    monkeypatch.setenv("MALLOC_ARENA_MAX", "7")
    keep_heaps_few()
    assert os.environ["MALLOC_ARENA_MAX"] == "7"


async def test_heaps_are_trimmed_once_a_while(monkeypatch):
    trims, now = [], 1000.0
    monkeypatch.setattr(heaps, "trim_heaps", lambda: trims.append(now))
    monkeypatch.setattr(heaps, "time", SimpleNamespace(monotonic=lambda: now))
    trimmer = HeapTrimmer()
    for seconds in (0, TRIM_EVERY_S - 1, 2, 1, TRIM_EVERY_S):
        now += seconds
        await trimmer.trim_when_due()
    assert trims == [1000.0 + TRIM_EVERY_S + 1, 1000.0 + 2 * TRIM_EVERY_S + 2]
