"""Golden questions survive being written and read; three pictures are asked about in all orders."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from demo.digits import digits
from demo.drawing import to_image
from demo.examples import held_out_example
from demo.golden import in_every_order, load, write, wrong_answers
from demo.sprites import plain_sprites


class Scripted:
    def __init__(self, answers):
        self.answers = list(answers)

    def answer(self, conversation):
        return self.answers.pop(0)


@pytest.fixture(scope="module")
def conversation():
    rng = Random()
    sprites = plain_sprites(digits("held_out"), seed=0)
    example = held_out_example(rng, "turns")
    return [([to_image(picture, sprites, rng) for picture in turn.pictures], turn) for turn in example.turns]


def test_what_is_written_is_read(tmp_path, conversation):
    write(tmp_path, iter([("turns", conversation), ("turns", conversation)]))
    (task, read), _ = load(tmp_path)
    assert task == "turns"
    assert [turn.question.answer for _, turn in read] == [turn.question.answer for _, turn in conversation]
    assert [turn.pictures_last for _, turn in read] == [turn.pictures_last for _, turn in conversation]
    assert np.array_equal(np.array(read[0][0][0]), np.array(conversation[0][0][0]))
    assert len(list(tmp_path.glob("*.png"))) == 1


def test_wrong_answers_are_named(conversation):
    right = [turn.question.answer for _, turn in conversation]
    assert wrong_answers(conversation, Scripted(right)) == []
    (line,) = wrong_answers(conversation, Scripted([right[0], "mud", right[2]]))
    assert "'mud'" in line
    assert repr(right[1]) in line


def test_the_first_picture_is_found_wherever_it_stands():
    pictures = ["sought", "second", "third"]
    orders = list(in_every_order(pictures, "star"))
    assert len({tuple(images) for ((images, _),) in orders}) == 6
    for ((images, turn),) in orders:
        place = ("the first picture", "the second picture", "the third picture")[images.index("sought")]
        assert turn.question.text == "Which picture shows the star?"
        assert turn.question.answer == place
