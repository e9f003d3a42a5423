"""Fewer, larger pieces of a text stream: each piece that crosses a Serve handle costs an object of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable


async def coalesce(chunks: AsyncIterable[str], window_s: float) -> AsyncGenerator[str, None]:
    """Yields the text of `chunks` at most once in `window_s` seconds, and what remains as soon as they end.

    A chunk that comes later than `window_s` after the last yield, the first one too, goes out at once. The
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
    try:
        next_yield = loop.time()
        while True:
            await news.wait()
            # Ends early when the source does.
            await asyncio.wait({task}, timeout=max(0.0, next_yield - loop.time()))
            ended = task.done()
            news.clear()
            if gathered:
                next_yield = loop.time() + window_s
                text = "".join(gathered)
                gathered.clear()
                yield text
            if ended:
                await task
                return
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
