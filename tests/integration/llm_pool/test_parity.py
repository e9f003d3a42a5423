"""A decoder that gets embeddings answers as a stock vLLM engine that sees the pictures.

The stock engine's answers are recorded in tests/data; the slow test asks it again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.integration.llm_pool import parity
from tests.integration.llm_pool.chain import Chain, numbered

RECORD = Path(__file__).parents[2] / "data" / "stock_answers.json"
FLOAT32_TOLERANCE = 0.001
BFLOAT16_TOLERANCE = 0.05


@pytest.fixture(scope="module")
def record(tiny_checkpoint: Path) -> dict[str, Any]:
    found = json.loads(RECORD.read_text())
    assert found["checkpoint"] == parity.digest(tiny_checkpoint), "recorded with another checkpoint: record again"
    return found


def ask_greedy(chain: Chain, case: str, **more: Any) -> parity.Answer:
    pictures: list[Image.Image] = []
    return parity.greedy_answer(chain.answer(parity.greedy_request(case, numbered(pictures)) | more, pictures))


def ask_forced(chain: Chain, case: str, greedy: parity.Answer) -> list[dict[str, float]]:
    pictures: list[Image.Image] = []
    response = chain.answer(parity.forced_request(case, numbered(pictures), greedy["text"]), pictures)
    return parity.forced_answer(response, greedy)


def assert_close(ours: list[dict[str, float]], stock: list[dict[str, float]], tolerance: float) -> None:
    """Every logprob that both report is close, and both report the likeliest token of the stock engine."""
    assert len(ours) == len(stock)
    for mine, theirs in zip(ours, stock, strict=True):
        assert max(theirs, key=theirs.__getitem__) in mine
        for token in mine.keys() & theirs.keys():
            assert mine[token] == pytest.approx(theirs[token], abs=tolerance)


@pytest.mark.parametrize("case", parity.CASES)
def test_float32_gives_the_same_prompt_tokens_and_logprobs(chain: Chain, record: dict[str, Any], case: str) -> None:
    stock = record["float32"][case]["greedy"]
    ours = ask_greedy(chain, case)
    assert ours["prompt"] == stock["prompt"]
    assert ours["tokens"] == stock["tokens"]
    assert_close(ours["logprobs"], stock["logprobs"], FLOAT32_TOLERANCE)


def test_another_picture_moves_the_logprobs_far_beyond_the_tolerance(chain: Chain) -> None:
    one, another = (ask_greedy(chain, case, top_logprobs=20) for case in ("one tile", "another picture"))
    assert one["prompt"] == another["prompt"]
    # In the first step nothing but the picture differs.
    first, other = one["logprobs"][0], another["logprobs"][0]
    common = first.keys() & other.keys()
    assert common
    assert max(abs(first[token] - other[token]) for token in common) > 10 * BFLOAT16_TOLERANCE


@pytest.mark.parametrize("case", parity.CASES)
def test_bfloat16_gives_the_same_forced_logprobs(bfloat16_chain: Chain, record: dict[str, Any], case: str) -> None:
    stock = record["bfloat16"][case]
    assert ask_greedy(bfloat16_chain, case)["prompt"] == stock["greedy"]["prompt"]
    ours = ask_forced(bfloat16_chain, case, stock["greedy"])
    assert_close(ours, stock["forced"], BFLOAT16_TOLERANCE)
    for mine, theirs in zip(ours, stock["forced"], strict=True):
        first, second = sorted(theirs.values(), reverse=True)[:2]
        if first - second > BFLOAT16_TOLERANCE:
            assert max(mine, key=mine.__getitem__) == max(theirs, key=theirs.__getitem__)


@pytest.mark.slow
def test_the_record_is_what_the_stock_engine_says(
    record: dict[str, Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "answers.json"
    subprocess.run(
        [sys.executable, "-m", "tests.integration.llm_pool.record_stock_answers", str(tiny_checkpoint), str(out)],
        cwd=Path(__file__).parents[3],
        check=True,
        timeout=500,
    )
    again = json.loads(out.read_text())
    assert again["checkpoint"] == record["checkpoint"]
    for dtype, tolerance in (("float32", FLOAT32_TOLERANCE), ("bfloat16", BFLOAT16_TOLERANCE)):
        for case in parity.CASES:
            recorded, found = record[dtype][case], again[dtype][case]
            assert found["greedy"]["prompt"] == recorded["greedy"]["prompt"]
            assert_close(found["forced"], recorded["forced"], tolerance)
