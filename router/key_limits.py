"""What an API key may use of one Router: requests a minute, and requests at a time."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from router.errors import ApiError
from router.live_settings import ApiKeySettings


class KeyLimits:
    """Counts by the keys' names, so that changed limits hold for requests that are under way, too."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: Counter[str] = Counter()
        # When a key that sent its requests evenly would have sent the next one (GCRA, ITU-T I.371).
        self._due: dict[str, float] = {}

    @contextmanager
    def admit(self, key: ApiKeySettings) -> Iterator[None]:
        """Counts a request for as long as its block runs. Raises ApiError 429 over one of the key's limits."""
        most = key.max_concurrent_requests
        if most is not None and self._running[key.name] >= most:
            message = f"this API key may have {most} requests running at a time"
            raise ApiError(429, message, code="concurrency_limit_exceeded", retry_after_s=1)
        if key.requests_per_minute is not None:
            self._count(key.name, key.requests_per_minute)
        self._running[key.name] += 1
        try:
            yield
        finally:
            self._running[key.name] -= 1

    def _count(self, name: str, per_minute: int) -> None:
        now = self._clock()
        due = max(self._due.get(name, now), now)
        # A minute's requests may come at once: one is too early if more than that lie ahead of an even pace.
        wait = due + 60 / per_minute - (now + 60)
        # Sums of sixtieths are not exact.
        if wait > 1e-6:
            message = f"this API key may send {per_minute} requests a minute"
            raise ApiError(429, message, code="rate_limit_exceeded", retry_after_s=math.ceil(wait))
        self._due[name] = due + 60 / per_minute
