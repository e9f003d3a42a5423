"""Plans are complete, in order, and never costlier than what one would do without packing."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder_pool.packing import Costs, Packer

counts = st.integers(1, 40)
seconds = st.floats(1e-4, 1.0)
costs = st.builds(
    Costs, graphs=st.dictionaries(counts, seconds, max_size=8), eager=st.dictionaries(counts, seconds, min_size=1)
)


@given(costs, st.integers(0, 200))
def test_every_tile_is_encoded_exactly_once(costs: Costs, tiles: int) -> None:
    steps = Packer(costs).plan(tiles)
    assert sum(step.tiles for step in steps) == tiles
    for step in steps:
        assert step.tiles >= 1
        assert step.budget is None or (step.budget in costs.graphs and step.tiles <= step.budget)
        assert step.budget is not None or step.tiles <= max(costs.eager)


@given(costs, st.integers(1, 40))
def test_no_single_run_is_cheaper(costs: Costs, tiles: int) -> None:
    ours = Packer(costs).cost(tiles)
    assert all(ours <= cost for budget, cost in costs.graphs.items() if budget >= tiles)
    eager = [(size, cost) for size, cost in sorted(costs.eager.items()) if size >= tiles]
    assert all(ours <= cost for _, cost in eager[:1])


@given(costs, st.integers(1, 120))
def test_the_cost_is_that_of_the_steps(costs: Costs, tiles: int) -> None:
    packer = Packer(costs)
    eager = sorted(costs.eager.items())
    total = sum(
        costs.graphs[step.budget]
        if step.budget is not None
        else next(cost for size, cost in eager if size >= step.tiles)
        for step in packer.plan(tiles)
    )
    assert total == pytest.approx(packer.cost(tiles))


@given(st.dictionaries(st.integers(1, 12), seconds, min_size=1, max_size=4), st.integers(1, 12))
def test_no_set_of_graphs_is_cheaper(graphs: dict[int, float], tiles: int) -> None:
    ours = Packer(Costs(graphs, {1: 1e3})).cost(tiles)
    sets = itertools.chain.from_iterable(
        itertools.combinations_with_replacement(graphs, length) for length in range(1, 13 if len(graphs) == 1 else 7)
    )
    assert all(ours <= sum(graphs[b] for b in chosen) + 1e-9 for chosen in sets if sum(chosen) >= tiles)


def test_padding_goes_to_one_graph_at_most() -> None:
    packer = Packer(Costs({1: 3.0, 5: 10.0, 17: 31.0}, {17: 100.0}))
    assert [(s.tiles, s.budget) for s in packer.plan(22)] == [(17, 17), (5, 5)]
    assert [(s.tiles, s.budget) for s in packer.plan(4)] == [(4, 5)]
    assert [(s.tiles, s.budget) for s in packer.plan(0)] == []
