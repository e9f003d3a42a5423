"""The trained demo model answers the golden questions through transformers, as it must through every other path."""

from __future__ import annotations

from pathlib import Path

from demo.answering import TransformersAnswerer
from demo.golden import load, wrong_answers

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "data" / "golden"


def test_forty_questions_over_all_tasks():
    conversations = load(GOLDEN)
    assert sum(len(turns) for _, turns in conversations) == 40
    assert {task for task, _ in conversations} == {
        "read", "name", "corner", "tile", "count", "spell", "compare", "turns",
    }  # fmt: skip


def test_transformers_answers_them_right():
    answerer = TransformersAnswerer(ROOT / "demo" / "checkpoint")
    assert [wrong for _, turns in load(GOLDEN) for wrong in wrong_answers(turns, answerer)] == []
