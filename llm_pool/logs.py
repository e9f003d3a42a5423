"""Keeps Serve's log file open through vLLM's start.

vLLM configures logging with `logging.config.dictConfig`, which closes every handler of the process. A file opens again
when it is written to; the buffer that Serve puts in front of it has lost its target, and would drop every line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler


@contextmanager
def keep_targets(logger: logging.Logger) -> Iterator[None]:
    """After its block, whatever that did to handlers, the buffers of `logger` have the targets that they had before."""
    targets = {handler: handler.target for handler in logger.handlers if isinstance(handler, MemoryHandler)}
    try:
        yield
    finally:
        for handler, target in targets.items():
            handler.setTarget(target)
