"""Conversations: answers follow from what is on the pictures, and held-out pictures are not among training's."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from demo.digits import digits
from demo.examples import TASKS, held_out_example, training_example
from demo.questions import compare, corner, name, read, spell, tile
from demo.questions import count as count_question
from demo.scene import Picture, Sprite, Thing


def thing(noun: str, colour: str, cell: tuple[int, int]) -> Thing:
    return Thing(noun, colour, cell, (0, 0, 0), (Sprite(noun, 0, 0, 50),))


def picture(grid: tuple[int, int], cells: tuple[int, int], *things: Thing) -> Picture:
    return Picture(*grid, cells, (255, 255, 255), things)


def answers(ask, *pictures: Picture) -> dict[str, str]:
    """Every question that `ask` finds, with its answer."""
    rng = Random(0)
    what = list(pictures) if len(pictures) > 1 else pictures[0]
    found = [ask(what, rng) for _ in range(400)]
    return {question.text: question.answer for question in found if question is not None}


CORNERS = picture(
    (1, 1), (2, 2), thing("circle", "red", (0, 1)), thing("circle", "blue", (1, 0)), thing("47", "red", (1, 1))
)


def test_read():
    assert set(answers(read, picture((1, 1), (1, 1), thing("472", "red", (0, 0)))).values()) == {"472"}
    assert answers(read, CORNERS) == {}


def test_name():
    found = answers(name, picture((1, 1), (1, 1), thing("ring", "orange", (0, 0))))
    assert found["What is in the picture?"] == "an orange ring"
    assert found["What colour is it?"] == "orange"
    assert found["What shape is it?"] == "ring"
    found = answers(name, CORNERS)
    assert found["What colour is the 47?"] == "red"
    assert found["What shape is the blue object?"] == "circle"
    assert not any("colour is the circle" in text for text in found)


def test_corner():
    found = answers(corner, CORNERS)
    assert found["Where is the red circle?"] == "top right"
    assert found["Where is the 47?"] == "bottom right"
    assert found["What is in the bottom left corner?"] == "a blue circle"
    assert "Where is the circle?" not in found


def test_tile():
    wide = picture((2, 3), (2, 3), thing("star", "green", (1, 2)), thing("8", "red", (0, 1)))
    found = answers(tile, wide)
    assert found["In which row and column is the green star?"] == "row 2, column 3"
    assert found["What is in row 1, column 2?"] == "a red 8"
    assert answers(tile, CORNERS) == {}


def test_count():
    found = answers(count_question, CORNERS)
    assert found["How many circles are there?"] == "2"
    assert found["Count the red objects."] == "2"
    assert found["How many objects do you see?"] == "3"
    assert "0" in found.values()


def test_spell():
    tall = picture((2, 2), (2, 2), *(thing(str(i), "red", divmod(i, 2)) for i in (3, 1, 0, 2)))
    assert answers(spell, tall)["Read the digits row by row."] == "0123"


def test_compare():
    pictures = [picture((1, 1), (1, 1), thing(noun, "red", (0, 0))) for noun in ("star", "12", "ring")]
    found = answers(compare, *pictures)
    assert found["Which picture shows the ring?"] == "the third picture"
    assert found["What number is in the second picture?"] == "12"
    assert found["What is in the first picture?"] == "a red star"


@pytest.mark.parametrize("load", ["one", "few", "many"])
def test_training_never_sees_a_held_out_arrangement(load):
    rng = Random()
    for _ in range(30):
        example = training_example(rng, load)
        assert not any(shown.is_held_out() for shown in example.pictures)
        tiles = sum(shown.tiles for shown in example.pictures)
        assert tiles <= {"one": 1, "few": 9, "many": 17}[load]


@pytest.mark.parametrize("task", TASKS)
def test_evaluation_sees_nothing_else(task):
    rng = Random()
    for _ in range(10):
        example = held_out_example(rng, task)
        assert example.task == task
        assert all(shown.is_held_out() for shown in example.pictures)
        assert len(example.turns) == (3 if task == "turns" else 1)


def test_handwriting_is_split():
    train, held_out = digits("train"), digits("held_out")
    assert len(train.labels) + len(held_out.labels) == 1797
    seen = {image.tobytes() for image in train.images}
    assert sum(image.tobytes() in seen for image in held_out.images) == 0
    assert min(Counter(held_out.labels.tolist()).values()) >= 25


def test_no_answer_is_so_common_that_guessing_pays():
    rng = Random(0)
    right = total = 0
    for task in TASKS:
        questions = [turn.question for _ in range(100) for turn in held_out_example(rng, task).turns]
        by_wording = Counter(question.answer for question in questions)
        right += by_wording.most_common(1)[0][1] / len(questions)
        total += 1
    assert right / total < 0.35
