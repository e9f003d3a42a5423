"""Admission by bytes: what a Router's requests may hold in the object stores, so that nothing spills to disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from router.errors import ApiError


class MemoryBudget:
    """Counts objects by name: one that several requests hold takes its bytes once. Belongs to one event loop.

    max_bytes: of all objects together. bytes: of those that are held now.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._sizes: dict[str, int] = {}
        self._holders: Counter[str] = Counter()
        self.bytes = 0

    @contextmanager
    def hold(self, sizes: Mapping[str, int]) -> Iterator[None]:
        """Holds objects of these sizes in bytes, all or none, for its block.

        Raises ApiError: 429 where they do not fit beside what others hold, 413 where they would not fit alone.
        """
        new = {name: size for name, size in sizes.items() if name not in self._sizes}
        if sum(sizes.values()) > self._max_bytes:
            raise ApiError(
                413,
                "the pictures of this request take more memory than a request may",
                param="messages",
                code="too_large",
            )
        if self.bytes + sum(new.values()) > self._max_bytes:
            raise ApiError(429, "the pictures of other requests take all memory", code="memory_full", retry_after_s=1)
        self._sizes |= new
        self._holders.update(sizes.keys())
        self.bytes += sum(new.values())
        try:
            yield
        finally:
            for name in sizes:
                self._release(name)

    def _release(self, name: str) -> None:
        self._holders[name] -= 1
        if not self._holders[name]:
            del self._holders[name]
            self.bytes -= self._sizes.pop(name)
