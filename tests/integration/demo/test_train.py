"""Training from end to end, a few steps long: what it writes is a checkpoint that transformers loads and asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import Llama4ForConditionalGeneration

from demo import train as training
from demo.answering import TransformersAnswerer
from demo.curves import History
from demo.examples import TASKS


def _train(directory: Path, vision_steps: int, start: Path | None = None) -> History:
    return training.train(
        directory,
        seed=0,
        vision_steps=vision_steps,
        minutes=0,
        workers=0,
        conversations={"one": 2},
        vision_pictures=2,
        variants=1,
        evaluation_size=1,
        start=start,
    )


@pytest.mark.slow
def test_a_few_steps_leave_a_checkpoint(tmp_path):
    history = _train(tmp_path, vision_steps=2)
    assert set(history.tasks) == set(TASKS)
    assert all(step == 3 for points in history.tasks.values() for step, _ in points)
    assert json.loads((tmp_path / "history.json").read_text())["losses"]
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    size = sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    assert size < 12_000_000
    answer = TransformersAnswerer(tmp_path).answer([{"role": "user", "content": [{"type": "text", "text": "Hi."}]}])
    assert isinstance(answer, str)


@pytest.mark.slow
def test_a_checkpoint_learns_on_and_keeps_its_encoder(tmp_path):
    checkpoint = Path(__file__).parents[3] / "demo" / "checkpoint"
    history = _train(tmp_path, vision_steps=0, start=checkpoint)
    assert [step for step, _ in history.tasks["read"]] == [1]
    before, after = (
        Llama4ForConditionalGeneration.from_pretrained(path).state_dict() for path in (checkpoint, tmp_path)
    )
    changed = {name for name, weight in before.items() if not torch.equal(weight, after[name])}
    assert "multi_modal_projector.linear_1.weight" in changed
    assert "language_model.model.layers.0.self_attn.q_proj.weight" in changed
    assert not {name for name in changed if name.startswith("vision_model.")}
