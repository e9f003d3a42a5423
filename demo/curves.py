"""What training saw, step by step, kept as numbers and drawn as curves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib.pyplot as plt


@dataclass
class History:
    """losses: (step, training loss); glyphs: (step, accuracy); tasks: task -> (step, held-out accuracy)."""

    losses: list[tuple[int, float]] = field(default_factory=list)
    glyphs: list[tuple[int, float]] = field(default_factory=list)
    tasks: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def add_tasks(self, step: int, right: Counter[str], asked: Counter[str]) -> float:
        """Records the accuracy of each task and returns that of all together."""
        for task, n in sorted(asked.items()):
            self.tasks.setdefault(task, []).append((step, right[task] / n))
        return right.total() / asked.total()

    def plot(self, path: Path) -> None:
        """Writes a PNG: the training loss, and held-out accuracy by task."""
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
        left.plot(*zip(*self.losses, strict=True), color="#34526b", linewidth=1)
        left.set(title="Training loss", xlabel="step", yscale="log")
        right.plot(*zip(*self.glyphs, strict=True), color="#bbbbbb", label="glyphs (training)")
        for task, points in self.tasks.items():
            right.plot(*zip(*points, strict=True), label=task, linewidth=1.3)
        right.set(title="Held-out accuracy by task", xlabel="step", ylim=(0, 1.01))
        right.legend(fontsize=8, loc="lower right")
        for axes in (left, right):
            axes.grid(alpha=0.25)
        figure.savefig(path, dpi=110)
        plt.close(figure)
