"""Gauges that are set again every few seconds: Ray's exporter forgets one that was not set for about 20 s."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ray.serve.metrics import Gauge

REPEAT_S = 5.0


def keep_set(gauge: Gauge, read: Callable[[], float]) -> asyncio.Task[None]:
    """Sets `gauge` from `read`, now and every REPEAT_S seconds, in a task of the running loop that the caller holds."""

    async def repeat() -> None:
        while True:
            gauge.set(read())
            await asyncio.sleep(REPEAT_S)

    return asyncio.get_running_loop().create_task(repeat())
