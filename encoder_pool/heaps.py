"""Freed memory that the C library keeps, given back to the system.

Trimming alone is not enough: only whole pages go back, and where many threads have heaps of their own, and large blocks
of all sizes come and go among small ones, ever more pages are used in part. Under load a decoder's free bytes so grew
by megabytes a minute while those in use stayed.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time

TRIM_EVERY_S = 60
# Heaps that all threads of a process share.
ARENAS = 2
# Blocks of so many bytes and more get pages of their own, which go back as soon as they are freed.
MAPPED_BYTES = 256 * 1024
# glibc's options, by the numbers that malloc.h gives them, and the variables that set them in processes started later.
_OPTIONS = {-8: ("MALLOC_ARENA_MAX", ARENAS), -3: ("MALLOC_MMAP_THRESHOLD_", MAPPED_BYTES)}


def keep_heaps_few() -> None:
    """In this process, and those that it starts. What the user set in the environment stays. Without glibc, nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for option, (variable, value) in _OPTIONS.items():
        if mallopt is not None and variable not in os.environ:
            mallopt(option, value)
            os.environ[variable] = str(value)


def trim_heaps() -> None:
    """In the heaps of all threads; takes milliseconds, in which what allocates may wait. Without glibc, does nothing.

    glibc gives back by itself only what lies at a heap's end: where small blocks live among large ones, the rest grows.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


class HeapTrimmer:
    """Keeps the heaps of a busy process few, and trims them now and then."""

    def __init__(self) -> None:
        keep_heaps_few()
        self._trimmed = time.monotonic()

    async def trim_when_due(self) -> None:
        """Does nothing within TRIM_EVERY_S seconds of the last time. The event loop goes on meanwhile."""
        if time.monotonic() - self._trimmed >= TRIM_EVERY_S:
            self._trimmed = time.monotonic()
            await asyncio.to_thread(trim_heaps)
