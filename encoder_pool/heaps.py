"""Freed memory that the C library keeps, given back to the system."""

from __future__ import annotations

import ctypes


def trim_heaps() -> None:
    """In the heaps of all threads; takes milliseconds, in which what allocates may wait. Without glibc, does nothing.

    glibc gives back by itself only what lies at a heap's end: where small blocks live among large ones, the rest grows.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
