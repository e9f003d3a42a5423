"""Claims of GPUs between processes."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from encoder_pool.errors import NoFreeGpuError
from encoder_pool.gpu_claim import claim_gpu

CLAIM = """
import sys, pathlib
from encoder_pool.gpu_claim import claim_gpu
print(claim_gpu(int(sys.argv[1]), pathlib.Path(sys.argv[2]), wait_s=20), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def claimant(tmp_path):
    """Starts a process that claims one of two GPUs and holds it; returns (process, number)."""
    started: list[subprocess.Popen] = []

    def start() -> tuple[subprocess.Popen, int]:
        process = subprocess.Popen(
            [sys.executable, "-c", CLAIM, "2", str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process, int(process.stdout.readline())

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_each_process_gets_another_and_a_killed_one_frees_its_own(claimant, tmp_path):
    first, one = claimant()
    _, other = claimant()
    assert (one, other) == (0, 1)
    with pytest.raises(NoFreeGpuError):
        claim_gpu(2, tmp_path, wait_s=0)
    first.kill()
    first.wait()
    assert claimant()[1] == 0


def test_a_predecessor_that_is_still_ending_is_waited_for(claimant, tmp_path):
    first, _ = claimant()
    claimant()
    ending = subprocess.Popen([sys.executable, "-c", f"import time, os; time.sleep(1); os.kill({first.pid}, 9)"])
    started = time.monotonic()
    assert claimant()[1] == 0
    assert time.monotonic() - started > 0.5
    ending.wait()


def test_a_node_without_gpus_is_an_error(tmp_path):
    with pytest.raises(NoFreeGpuError, match="0 GPUs"):
        claim_gpu(0, tmp_path, wait_s=0)
