"""Handwritten digits: the 1797 pictures of 8x8 pixels that scikit-learn carries, split in two that never mix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from sklearn.datasets import load_digits

Split = Literal["train", "held_out"]


@dataclass(frozen=True)
class Digits:
    """images: float32 [n, 8, 8], ink from 0 to 1; labels: int64 [n], 0 to 9."""

    images: np.ndarray
    labels: np.ndarray


@cache
def digits(split: Split) -> Digits:
    """Every fifth picture is held out, the others train."""
    bunch = load_digits()
    held_out = np.arange(len(bunch.target)) % 5 == 0
    chosen = held_out if split == "held_out" else ~held_out
    return Digits(bunch.images[chosen].astype(np.float32) / 16, bunch.target[chosen].astype(np.int64))
