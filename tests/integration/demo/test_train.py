"""Training from end to end, a few steps long: what it writes is a checkpoint that transformers loads and asks."""

from __future__ import annotations

import json

import pytest

from demo import train as training
from demo.answering import TransformersAnswerer
from demo.examples import TASKS


@pytest.mark.slow
def test_a_few_steps_leave_a_checkpoint(tmp_path):
    history = training.train(
        tmp_path,
        seed=0,
        vision_steps=2,
        minutes=0,
        workers=0,
        conversations={"one": 2},
        vision_pictures=2,
        variants=1,
        evaluation_size=1,
    )
    assert set(history.tasks) == set(TASKS)
    assert all(step == 3 for points in history.tasks.values() for step, _ in points)
    assert json.loads((tmp_path / "history.json").read_text())["losses"]
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    size = sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    assert size < 12_000_000
    answer = TransformersAnswerer(tmp_path).answer([{"role": "user", "content": [{"type": "text", "text": "Hi."}]}])
    assert isinstance(answer, str)
