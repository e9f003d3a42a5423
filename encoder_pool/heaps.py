"""Freed memory that the C library keeps, given back to the system."""

from __future__ import annotations

import asyncio
import ctypes
import time

TRIM_EVERY_S = 60


def trim_heaps() -> None:
    """In the heaps of all threads; takes milliseconds, in which what allocates may wait. Without glibc, does nothing.

    glibc gives back by itself only what lies at a heap's end: where small blocks live among large ones, the rest grows.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


class HeapTrimmer:
    """Trims the heaps of a busy process now and then: requests and embeddings of all sizes come and go in it."""

    def __init__(self) -> None:
        self._trimmed = time.monotonic()

    async def trim_when_due(self) -> bool:
        """Whether it did: not within TRIM_EVERY_S seconds of the last time. The event loop goes on meanwhile."""
        if time.monotonic() - self._trimmed < TRIM_EVERY_S:
            return False
        self._trimmed = time.monotonic()
        await asyncio.to_thread(trim_heaps)
        return True
