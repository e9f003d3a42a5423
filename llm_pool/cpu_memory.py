"""Keeps the memory of a decoder on CPUs from growing with everything that it has ever been asked.

Nothing leaks there: but blocks of all sizes come and go in its heaps, and those end at the most that was ever in use.
"""

from __future__ import annotations

import asyncio
import ctypes
import os

from vllm.v1.engine.async_llm import AsyncLLM

from encoder_pool.heaps import trim_heaps

# oneDNN keeps a kernel for each of the last 1024 shapes, and every number of tokens in a batch makes new ones. Large
# blocks get pages of their own, which go back with them.
WORKERS_ENV = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128", "MALLOC_MMAP_THRESHOLD_": str(2**20)}
# From <malloc.h>. A decoder's own blocks are requests, prompts and messages to the workers, no tensors of a model.
M_MMAP_THRESHOLD = -3
OWN_MMAP_THRESHOLD = 128 * 2**10


class TrimmingWorker:
    """What vLLM adds to its worker's class (its argument `worker_extension_cls`); `collective_rpc` calls it by name."""

    def tessera_trim_heaps(self) -> None:
        trim_heaps()


EXTENSION = f"{__name__}.{TrimmingWorker.__qualname__}"


def bound_memory() -> None:
    """Of this process, and of workers that start after this; what the user set in the environment stays."""
    for variable, value in WORKERS_ENV.items():
        os.environ.setdefault(variable, value)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc's, as trim_heaps needs it
        mallopt(M_MMAP_THRESHOLD, OWN_MMAP_THRESHOLD)


class WorkerTrimmer:
    """Trims the heaps of an engine's workers, which have the extension."""

    def __init__(self, client: AsyncLLM) -> None:
        self._client = client
        self._trim: asyncio.Task[list[None]] | None = None

    def trim(self) -> None:
        """Begins to, unless that still goes on: workers come to it after a step, which may take long."""
        if self._trim is None or self._trim.done():
            self._trim = asyncio.create_task(self._client.collective_rpc("tessera_trim_heaps"))
            # A dead engine is found by its health check.
            self._trim.add_done_callback(lambda done: done.cancelled() or done.exception())

    def stop(self) -> None:
        if self._trim is not None:
            self._trim.cancel()
