"""Labels of the auxiliary heads: what covers an embedding's pixels, and which tile it lies in."""

from __future__ import annotations

from random import Random

import numpy as np

from demo.auxiliary import IGNORED, NOUNS, embedding_labels, position_labels
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
