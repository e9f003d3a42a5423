"""Which cells run, and at which rate."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import pytest

from benchmarks.parity.__main__ import LOADS, MUST_HAVE, Grid, without_paths
from benchmarks.parity.sizes import TINY, scout


def grid(out: Path, only: list[str], resume: bool = False) -> Grid:
    return Grid(argparse.Namespace(out=out, only=only, resume=resume, limit_s=60), {})


def test_only_picks_and_resume_leaves_out(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    assert len(grid(out, MUST_HAVE).wanted("tessera")) == 9
    assert grid(out, MUST_HAVE).wanted("tessera, mps") == []
    first = grid(out, ["tessera/mixed chat/*"])
    assert first.wanted("tessera") == [("mixed chat", load) for load in LOADS]
    first.result["cells"]["tessera/mixed chat/half"] = {}
    out.write_text(json.dumps(first.result))
    assert len(grid(out, ["tessera/mixed chat/*"]).wanted("tessera")) == 5
    assert len(grid(out, ["tessera/mixed chat/*"], resume=True).wanted("tessera")) == 4


def test_rates_are_shares_of_the_reference(tmp_path: Path) -> None:
    cells = grid(tmp_path / "result.json", MUST_HAVE)
    size = scout(8)
    assert cells._amount("text only", "burst", size) == (256, math.inf)
    with pytest.raises(SystemExit, match="vllm eager/text only/burst"):
        cells._amount("text only", "half", size)
    cells.result["cells"]["vllm eager/text only/burst"] = {"requests_per_s": 20.0}
    assert cells._amount("text only", "half", size) == (60, 10.0)
    assert cells._amount("text only", "full", size) == (120, 20.0)
    assert cells._amount("text only", "full", TINY)[0] < 120
    cells.result["cells"]["tessera, eager encoder/text only/burst"] = {"requests_per_s": 8.0}
    assert cells._amount("text only", "eager full", size) == (48, 8.0)


def test_results_name_no_path_of_the_machine() -> None:
    command = f"{sys.executable} -m serve /data/logs/a.yaml --model /data/logs/checkpoint"
    named = without_paths(command, Path("/data/logs/checkpoint"), Path("/data/logs"))
    assert named == "python -m serve LOGS/a.yaml --model CHECKPOINT"
