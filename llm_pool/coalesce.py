"""Fewer, larger pieces of text streams: each piece that crosses a Serve handle costs an object of its own.

A Router is one event loop, and many streams at a token a piece would fill it, so that new requests waited behind the
tokens of others. So what all streams of a decoder send together is limited too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable


class Pace:
    """How often the streams of one process may yield: each once in `window_s` seconds, all together `most_per_s`.

    streams: how many there are now.
    """

    def __init__(self, window_s: float, most_per_s: float) -> None:
        self._window_s = window_s
        self._most_per_s = most_per_s
        self.streams = 0

    @property
    def window_s(self) -> float:
        """Seconds between two yields of a stream, with as many streams as there are now."""
        return max(self._window_s, self.streams / self._most_per_s)


async def coalesce(chunks: AsyncIterable[str], pace: Pace) -> AsyncGenerator[str, None]:
    """Yields the text of `chunks` at the given pace, and what remains as soon as they end.

    A chunk that comes later than a window after the last yield, the first one too, goes out at once. The
    concatenation of what is yielded is that of `chunks`, and no piece is empty. An error of `chunks` is raised after
    all text before it was yielded. Closing this generator, or cancelling the task that awaits it, cancels `chunks`.
    """
    loop = asyncio.get_running_loop()
    gathered: list[str] = []
    news = asyncio.Event()

    async def gather() -> None:
        try:
            async for chunk in chunks:
                if chunk:
                    gathered.append(chunk)
                    news.set()
        finally:
            news.set()

    task = asyncio.create_task(gather())
    pace.streams += 1
    try:
        next_yield = loop.time()
        while True:
            await news.wait()
            # Ends early when the source does.
            await asyncio.wait({task}, timeout=max(0.0, next_yield - loop.time()))
            ended = task.done()
            news.clear()
            if gathered:
                next_yield = loop.time() + pace.window_s
                text = "".join(gathered)
                gathered.clear()
                yield text
            if ended:
                await task
                return
    finally:
        pace.streams -= 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
