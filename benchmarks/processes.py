"""Memory and CPU of a server's processes, and of Ray's object store, while something runs."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
import numpy as np
import psutil

STORE = "ray_object_store_used_memory"
# Fewer samples than these make no line.
LEAST_SAMPLES = 6


@dataclass
class Samples:
    """times: seconds of the samples, from the first; private_bytes: of each process, in the samples that it was in.

    cpu_seconds: by process; store_bytes: of all nodes' object stores together, empty where no export was given.
    """

    times: list[float] = field(default_factory=list)
    private_bytes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    store_bytes: list[float] = field(default_factory=list)

    def lasting(self) -> dict[str, list[int]]:
        """Private bytes of the processes that were in all samples."""
        return {name: values for name, values in self.private_bytes.items() if len(values) == len(self.times)}

    def growth(self) -> dict[str, float]:
        """Bytes a minute by lasting process: the slope of a line through the samples; empty below LEAST_SAMPLES."""
        if len(self.times) < LEAST_SAMPLES:
            return {}
        minutes = np.array(self.times) / 60
        return {name: float(np.polyfit(minutes, values, 1)[0]) for name, values in self.lasting().items()}


class Watch:
    """Samples the tree of processes below `root` (the root left out) every `period_s` seconds.

    exports: URLs of the Prometheus exports of Ray's nodes.
    """

    def __init__(self, root: int, exports: Sequence[str] = (), period_s: float = 5.0) -> None:
        self._root = psutil.Process(root)
        self._names: dict[int, str] = {}
        self._exports = exports
        self._period_s = period_s

    async def run(self, stop: asyncio.Event) -> Samples:
        """Samples until `stop` is set."""
        samples = Samples()
        began = time.monotonic()
        cpu_before = self._cpu()
        private: dict[int, list[int]] = defaultdict(list)
        while not stop.is_set():
            samples.times.append(time.monotonic() - began)
            for process in self._root.children(recursive=True):
                with suppress(psutil.Error):
                    self._note(process)
                    memory = process.memory_info()
                    # What a process shares is mostly Ray's object store, which is sampled by itself.
                    private[process.pid].append(memory.rss - memory.shared)
            if self._exports:
                samples.store_bytes.append(await exported(self._exports, STORE))
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._period_s)
        spent = self._cpu()
        samples.private_bytes |= {self._names[pid]: values for pid, values in private.items()}
        samples.cpu_seconds = {self._names[pid]: spent[pid] - cpu_before.get(pid, 0.0) for pid in spent}
        return samples

    def _note(self, process: psutil.Process) -> None:
        """Its name, the last that it bore: a Ray worker takes another one for each call."""
        self._names[process.pid] = f"{' '.join(process.cmdline())[:70].strip()} [{process.pid}]"

    def _cpu(self) -> dict[int, float]:
        """Seconds, by process."""
        spent = {}
        for process in self._root.children(recursive=True):
            with suppress(psutil.Error):
                self._note(process)
                times = process.cpu_times()
                spent[process.pid] = times.user + times.system
        return spent


async def exported(exports: Sequence[str], gauge: str) -> float:
    """The sum of a gauge over all nodes with these exports; up to ten seconds old."""
    values = re.compile(rf"^{gauge}\{{[^}}]*\}} (\S+)$", re.MULTILINE)
    total = 0.0
    async with aiohttp.ClientSession() as session:
        for url in exports:
            async with session.get(url) as response:
                total += sum(float(value) for value in values.findall(await response.text()))
    return total
