"""The evaluation leads conversations as written and counts word for word."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from demo.digits import digits
from demo.evaluate import Result, ask, held_out_examples, table
from demo.examples import TASKS, held_out_example
from demo.sprites import plain_sprites


class Recorder:
    """Answers from a list and keeps what it was asked."""

    def __init__(self, answers: list[str]) -> None:
        self.answers = list(answers)
        self.conversations: list[list[dict]] = []

    def answer(self, conversation):
        self.conversations.append([dict(message) for message in conversation])
        return self.answers.pop(0)


@pytest.fixture(scope="module")
def sprites():
    return plain_sprites(digits("held_out"), seed=0)


def test_a_conversation_carries_the_models_own_answers(sprites):
    example = held_out_example(Random(3), "turns")
    expected = [turn.question.answer for turn in example.turns]
    recorder = Recorder([expected[0], "nonsense", expected[2]])
    results = list(ask(example, recorder, sprites, Random(0)))
    assert [result.right for result in results] == [True, False, True]
    last = recorder.conversations[-1]
    assert [message["role"] for message in last] == ["user", "assistant"] * 2 + ["user"]
    assert last[3]["content"] == [{"type": "text", "text": "nonsense"}]
    assert sum(part["type"] == "image" for message in last for part in message["content"]) == 1


def test_blind_pictures_are_grey_and_as_large(sprites):
    example = held_out_example(Random(), "tile")
    recorder = Recorder(["", ""])
    for blind in (False, True):
        list(ask(example, recorder, sprites, Random(0), blind))
    seen, grey = (
        next(np.array(part["image"]) for part in conversation[0]["content"] if part["type"] == "image")
        for conversation in recorder.conversations
    )
    assert seen.shape == grey.shape
    assert (grey == 128).all()
    assert len(np.unique(seen)) > 1


def test_the_table_counts_by_task():
    results = [Result("read", "?", "1", "1"), Result("read", "?", "2", "3"), Result("name", "?", "red", "red")]
    columns = [list(column.cells) for column in table(results).columns]
    rows = dict(zip(columns[0], zip(columns[1], columns[2], strict=True), strict=True))
    assert rows["read"] == ("2", "50.0%")
    assert rows["name"] == ("1", "100.0%")
    assert rows["all"] == ("3", "66.7%")
    assert set(rows) == {*TASKS, "all"}


def test_the_same_seed_asks_the_same():
    first, again = (held_out_examples(40, seed=5) for _ in range(2))
    assert first == again
    assert sum(len(example.pictures) for example in first) >= 40
    assert {example.task for example in first} == set(TASKS)
