import asyncio
import os
import sys

import pytest

from benchmarks.processes import LEAST_SAMPLES, Samples, Watch

RENAMES = """
import time
from setproctitle import setproctitle

for i in range(1000):
    setproctitle(f"call {i}")
    time.sleep(0.01)
"""


def sampled(count: int) -> Samples:
    """Every ten seconds: a process that grows by 600 bytes a second, and one that was not there from the start."""
    grows, came = [1000 + 6000 * i for i in range(count)], [7] * (count - 1)
    return Samples([10.0 * i for i in range(count)], {"grows": grows, "came": came})


def test_growth_is_the_slope_of_what_lasted():
    assert sampled(LEAST_SAMPLES).growth() == {"grows": pytest.approx(36_000)}


def test_few_samples_make_no_line():
    samples = sampled(LEAST_SAMPLES - 1)
    assert samples.growth() == {}
    assert samples.lasting().keys() == {"grows"}


async def test_a_process_that_changes_its_name_is_one():
    """Ray's workers name themselves after the method that they run."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", RENAMES)
    try:
        stop = asyncio.Event()
        watching = asyncio.create_task(Watch(os.getpid(), period_s=0.2).run(stop))
        await asyncio.sleep(2)
        stop.set()
        samples = await watching
    finally:
        process.kill()
        await process.wait()
    [name] = [name for name in samples.lasting() if name.endswith(f"[{process.pid}]")]
    assert name.startswith("call ")
    assert name in samples.cpu_seconds
