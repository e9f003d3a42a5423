"""Which numbers of tiles get a graph; capture and replay are tested on a GPU (tests/gpu)."""

from __future__ import annotations

import itertools

import pytest

from encoder_pool.graphs import default_budgets


def test_one_image_fits_exactly_and_larger_steps_follow() -> None:
    budgets = default_budgets(1, 64)
    assert budgets[:17] == list(range(1, 18))
    assert {34, 64} <= set(budgets)
    assert all(b / a <= 1.15 for a, b in itertools.pairwise(budgets[17:]))


@pytest.mark.parametrize("largest", [1, 5, 17, 40, 300])
def test_budgets_keep_to_their_range(largest: int) -> None:
    budgets = default_budgets(1, largest)
    assert budgets == sorted(set(budgets))
    assert (budgets[0], budgets[-1]) == (1, largest)
