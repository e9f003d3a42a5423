"""How the tiles of one request are spread over encoder replicas: pure arithmetic.

The same even split that vLLM's `--mm-encoder-tp-mode data` makes over ranks, at tile granularity: an image may be
split, since attention never crosses tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """Tiles start..stop of image number `image`."""

    image: int
    start: int
    stop: int

    @property
    def tiles(self) -> int:
        return self.stop - self.start


def plan_shards(tiles: Sequence[int], replicas: int, min_tiles: int) -> list[list[Piece]]:
    """The shards of images of `tiles` tiles each: contiguous, in order, even to within one tile, none empty.

    At most `replicas` shards (at least 1), and none below `min_tiles` unless there is only one: a shard costs a hop,
    which has to be worth it.
    """
    total = sum(tiles)
    shards = max(1, min(replicas, total // min_tiles))
    size, larger = divmod(total, shards)
    room = [size + (shard < larger) for shard in range(shards)]
    plan: list[list[Piece]] = [[] for _ in range(shards)]
    shard = 0
    for image, count in enumerate(tiles):
        start = 0
        while start < count:
            if not room[shard]:
                shard += 1
            stop = start + min(room[shard], count - start)
            plan[shard].append(Piece(image, start, stop))
            room[shard] -= stop - start
            start = stop
    return plan
