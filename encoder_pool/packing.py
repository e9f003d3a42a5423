"""Which captured graphs encode a number of tiles in the least time. Pure arithmetic."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Step:
    """One piece of work: `tiles` of the batch, through the graph of `budget` tiles, or eagerly (None)."""

    tiles: int
    budget: int | None


@dataclass(frozen=True, slots=True)
class Costs:
    """graphs: seconds of one replay, by the graph's budget in tiles.

    eager: seconds of an eager run, by number of tiles; at least one. A count between two measured ones is taken to
    cost what the next larger one does; no eager run is larger than the largest measured one.
    """

    graphs: Mapping[int, float]
    eager: Mapping[int, float]


class Packer:
    """Splits batches into steps; remembers the splits."""

    def __init__(self, costs: Costs) -> None:
        self._graphs = costs.graphs
        self._eager = sorted(costs.eager.items())
        # Seconds of the best way to encode i tiles, and its first step.
        self._best: list[tuple[float, Step]] = [(0.0, Step(0, None))]
        self.plan = lru_cache(maxsize=1024)(self._plan)

    def cost(self, tiles: int) -> float:
        """Seconds that the plan for this number of tiles takes, by the measured costs."""
        self._extend(tiles)
        return self._best[tiles][0]

    def _plan(self, tiles: int) -> tuple[Step, ...]:
        """The steps, whose tiles add up to `tiles`; all graphs but the last one are full.

        Never costs more than the best single graph that is large enough, nor than running eagerly.
        """
        self._extend(tiles)
        steps = []
        while tiles:
            steps.append(self._best[tiles][1])
            tiles -= steps[-1].tiles
        return tuple(sorted(steps, key=lambda step: step.tiles, reverse=True))

    def _extend(self, tiles: int) -> None:
        """Dynamic programming over the number of tiles: a first step, then the best way for the rest."""
        for i in range(len(self._best), tiles + 1):
            eager_count, eager_seconds = self._eager[min(self._next_eager(i), len(self._eager) - 1)]
            used = min(eager_count, i)
            candidates = [(eager_seconds + self._best[i - used][0], Step(used, None))]
            for budget, seconds in self._graphs.items():
                used = min(budget, i)
                candidates.append((seconds + self._best[i - used][0], Step(used, budget)))
            self._best.append(min(candidates, key=lambda candidate: candidate[0]))

    def _next_eager(self, tiles: int) -> int:
        """Index of the smallest measured eager run of at least this many tiles."""
        return bisect.bisect_left(self._eager, (tiles, 0.0))
