"""Runs fused_ops_interpreted.py in a process of its own: Triton decides at its first import whether to interpret."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_the_fused_kernels_under_the_interpreter() -> None:
    tests = Path(__file__).with_name("fused_ops_interpreted.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    run = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout[-4000:]
    assert " passed" in run.stdout
