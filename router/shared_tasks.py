"""Work that several requests want at the same time is done once."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Shared(Generic[T]):
    task: asyncio.Task[T]
    waiters: int = 0


class SharedTasks(Generic[K, T]):
    """Running work by its key; belongs to one event loop. Results are not kept."""

    def __init__(self) -> None:
        self._running: dict[K, _Shared[T]] = {}

    async def join(self, key: K, work: Callable[[], Awaitable[T]]) -> T:
        """The result of the work that runs under `key`, or of `work`; raises what it raised.

        It goes on while anyone waits for it, whoever began it, and is cancelled when the last one leaves.
        """
        shared = self._running.get(key)
        if shared is None:
            shared = self._running[key] = _Shared(self._start(key, work))
        shared.waiters += 1
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.waiters -= 1
            if not shared.waiters and not shared.task.done():
                # Nobody may join what is about to end.
                self._forget(key, shared.task)
                shared.task.cancel()

    def _start(self, key: K, work: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        async def run() -> T:
            return await work()

        # Serve cancels, with a request, every task of that request's context. This one may outlive the request.
        task = asyncio.get_running_loop().create_task(run(), context=contextvars.Context())
        task.add_done_callback(lambda done: self._forget(key, done))
        return task

    def _forget(self, key: K, task: asyncio.Task[T]) -> None:
        # Asking for the exception marks it as seen, when every waiter has left.
        if task.done() and not task.cancelled():
            task.exception()
        found = self._running.get(key)
        if found is not None and found.task is task:
            del self._running[key]
