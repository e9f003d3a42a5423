"""Who may decode: pictures are admitted by their pixels, first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque


class PixelGate:
    """A semaphore counted in pixels; belongs to one event loop."""

    def __init__(self, pixels: int) -> None:
        self._free = pixels
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def acquire(self, pixels: int) -> None:
        """Waits until so many are free; more than there are in all would wait for ever."""
        if not self._waiting and pixels <= self._free:
            self._free -= pixels
            return
        turn = pixels, asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn[1]
        except asyncio.CancelledError:
            # Else it was admitted in the same moment.
            if turn[1].cancelled():
                self._admit()
            else:
                self.release(pixels)
            raise

    def release(self, pixels: int) -> None:
        self._free += pixels
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            pixels, turn = self._waiting[0]
            if not turn.cancelled():
                if pixels > self._free:
                    return
                self._free -= pixels
                turn.set_result(None)
            self._waiting.popleft()
