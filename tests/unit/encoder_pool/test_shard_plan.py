import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder_pool.shard_plan import Piece, plan_shards


@given(
    st.lists(st.integers(1, 17), min_size=1, max_size=20),
    st.integers(1, 40),
    st.integers(1, 9),
)
def test_every_tile_once_in_order_and_evenly(tiles, replicas, min_tiles):
    plan = plan_shards(tiles, replicas, min_tiles)
    seen = [(p.image, tile) for shard in plan for p in shard for tile in range(p.start, p.stop)]
    assert seen == [(image, tile) for image, count in enumerate(tiles) for tile in range(count)]
    sizes = [sum(piece.tiles for piece in shard) for shard in plan]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    assert len(plan) <= replicas
    assert len(plan) == 1 or min(sizes) >= min_tiles


@pytest.mark.parametrize(
    ("tiles", "replicas", "min_tiles", "sizes"),
    [
        ([17], 4, 1, [5, 4, 4, 4]),
        ([1], 8, 1, [1]),
        ([3], 8, 1, [1, 1, 1]),
        ([5], 4, 5, [5]),
        ([17], 4, 5, [6, 6, 5]),
        ([1, 1, 1, 1, 1], 4, 1, [2, 1, 1, 1]),
    ],
)
def test_sizes(tiles, replicas, min_tiles, sizes):
    assert [sum(p.tiles for p in shard) for shard in plan_shards(tiles, replicas, min_tiles)] == sizes


def test_an_image_is_split_where_the_even_cut_falls():
    assert plan_shards([3, 5], 2, 1) == [[Piece(0, 0, 3), Piece(1, 0, 1)], [Piece(1, 1, 5)]]
