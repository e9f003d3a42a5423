"""Labels of the auxiliary heads: what covers an embedding's pixels, and which tile it lies in."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from demo.auxiliary import (
    COUNTED,
    IGNORED,
    NOUNS,
    AuxiliaryHeads,
    count_labels,
    embedding_labels,
    position_labels,
    subject_labels,
)
from demo.examples import Example, Turn
from demo.questions import Question
from demo.scene import COLOURS, Picture, Sprite, Thing, draw_picture


def test_a_thing_labels_the_embeddings_under_it():
    # 112 pixels, from the left edge of the second tile: embeddings are 28 pixels wide.
    square = Thing("square", "blue", (0, 1), (0, 0, 255), (Sprite("square", 336, 28, 112),))
    labels = embedding_labels(Picture(1, 2, (1, 2), (255, 255, 255), (square,)))
    assert labels.shape == (3, 12, 12, 4)
    expected = np.zeros((12, 12), dtype=bool)
    expected[1:5, 0:4] = True
    assert np.array_equal(labels[1, ..., 0] == 1 + NOUNS.index("square"), expected)
    assert np.array_equal(labels[1, ..., 1] == 1 + list(COLOURS).index("blue"), expected)
    assert not labels[0].any()
    assert (labels[2] == IGNORED).all()
    assert np.argwhere(labels[1, ..., 3] == 1).tolist() == [[3, 2]]


def test_digits_are_labelled_with_their_place_in_the_number():
    picture = draw_picture(Random(), (1, 1), (1, 1), ["472"])
    labels = embedding_labels(picture)[0]
    for place, digit in enumerate("472", start=1):
        at = labels[..., 2] == place
        assert at.any()
        assert (labels[at][:, 0] == 1 + NOUNS.index(digit)).all()


def test_positions_follow_the_tiles_and_the_pictures():
    single, wide = draw_picture(Random(), (1, 1), (1, 1), ["star"]), draw_picture(Random(), (1, 2), (1, 2), ["star"])
    expected = [(0, 0, 0), (1, 1, 1), (1, 2, 1), (0, 0, 1)]
    assert position_labels([single, wide]).tolist() == [list(row) for row in expected]
    assert position_labels([]).shape == (0, 3)


def test_a_picture_is_labelled_with_how_many_it_shows():
    nouns, colours = ["star", "star", "47", "ring"], ["red", "blue", "red", "red"]
    some = draw_picture(Random(), (2, 2), (2, 2), nouns, colours)
    many = draw_picture(Random(), (1, 1), (3, 3), ["circle"] * 9, ["green"] * 9)
    labels = count_labels([some, many])
    #                              circle square triangle cross star ring, red green blue yellow purple orange, all
    assert labels.tolist() == [[0, 0, 0, 0, 2, 1, 3, 0, 1, 0, 0, 0, 4], [6, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 6]]
    assert count_labels([]).shape == (0, COUNTED)


def test_a_question_is_labelled_with_its_subject():
    one = Thing("star", "green", (0, 0), (0, 255, 0), (Sprite("star", 10, 10, 100),))
    two = Thing("47", "blue", (2, 1), (0, 0, 255), (Sprite("4", 340, 700, 100), Sprite("7", 410, 700, 100)))
    pictures = (Picture(1, 1, (1, 1), (0, 0, 0), (one,)), Picture(3, 2, (3, 2), (0, 0, 0), (two,)))
    about_two = Turn(pictures, Question("tile", "Which tile holds the 47?", "row 3, column 2", two))
    about_none = Turn((), Question("count", "How many objects are there?", "2"))
    labels = subject_labels(Example("turns", (about_two, about_none)))
    assert labels[0].tolist() == [NOUNS.index("4"), list(COLOURS).index("blue"), 2, 1, 1]
    assert (labels[1] == IGNORED).all()


def test_subjects_are_judged_where_there_is_one():
    heads = AuxiliaryHeads(8)
    hidden, labels = torch.randn(2, 8), torch.tensor([[0, 1, 0, 1, 2], [IGNORED] * 5])
    alone = heads.subject_loss(hidden[:1], labels[:1]).item()
    assert heads.subject_loss(hidden, labels).item() == pytest.approx(alone)
    assert heads.subject_loss(hidden[1:], labels[1:]).item() == 0
