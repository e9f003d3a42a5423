"""Arrays that came from the encoders -> tensors that are safe to give to vLLM.

vLLM checks neither the number of rows nor the values of an embedding; one row too few raises inside an engine step and
ends the engine with every request in it. So everything is checked here, before the engine sees it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from encoder_pool.wire import CARRIER, EmbeddingDtype, HandOff, ImageShard
from llm_pool.errors import EmbeddingError, EncoderMismatchError

# Arrays from the object store are read-only, and nothing here writes to them.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)


@dataclass(frozen=True, slots=True)
class EmbeddingSpec:
    """What the engine's checkpoint expects of an embedding.

    width: of one embedding, the text model's hidden size.
    tokens_per_tile: embeddings of one tile.
    max_grid: tiles an image may have at most, without its global tile.
    dtype: the engine's.
    fingerprint: of the checkpoint's vision weights (encoder_pool/fingerprint.py).
    """

    width: int
    tokens_per_tile: int
    max_grid: int
    dtype: EmbeddingDtype
    fingerprint: str


def check_hand_off(hand_off: HandOff, spec: EmbeddingSpec) -> None:
    """What can be known before the arrays are there.

    Raises EncoderMismatchError where the vision weights differ; EmbeddingError where anything else does not fit.
    """
    if hand_off.fingerprint != spec.fingerprint:
        raise EncoderMismatchError("the vision encoder and this decoder were started from different vision weights")
    if hand_off.dtype != spec.dtype:
        raise EmbeddingError(f"embeddings are {hand_off.dtype}, the engine computes in {spec.dtype}")
    for index, image in enumerate(hand_off.images):
        _check_tiles(index, image, spec)


def rebuild(images: Sequence[ImageShard], arrays: Sequence[np.ndarray], spec: EmbeddingSpec) -> list[torch.Tensor]:
    """The embedding of each image, [tiles * tokens_per_tile, width] of the engine's dtype, on the CPU.

    images: whole ones, checked; arrays: each [rows, width], float32 or (bfloat16's bits) uint16, C-contiguous; an image
    takes one array, whose memory it shares, or several consecutive ones, which are copied together.
    Raises EmbeddingError where an array is not what the images need.
    """
    shards = [_tensor(array, spec) for array in arrays]
    embeddings: list[torch.Tensor] = []
    for index, image in enumerate(images):
        rows = image.tiles * spec.tokens_per_tile
        parts: list[torch.Tensor] = []
        while shards and sum(len(part) for part in parts) < rows:
            parts.append(shards.pop(0))
        found = sum(len(part) for part in parts)
        if found != rows:
            raise EmbeddingError(f"image {index}: {found} embeddings instead of {rows} ({image.tiles} tiles)")
        embeddings.append(parts[0] if len(parts) == 1 else torch.cat(parts))
    if shards:
        raise EmbeddingError(f"{len(shards)} arrays more than the {len(images)} images need")
    return embeddings


def _check_tiles(index: int, image: ImageShard, spec: EmbeddingSpec) -> None:
    high, wide = image.aspect
    if high < 1 or wide < 1 or high * wide > spec.max_grid:
        raise EmbeddingError(f"image {index}: a grid of {high} x {wide} tiles, 1 to {spec.max_grid} are possible")
    expected = 1 if high * wide == 1 else high * wide + 1
    if image.tiles != expected:
        raise EmbeddingError(f"image {index}: {image.tiles} tiles, a grid of {high} x {wide} has {expected}")


def _tensor(array: np.ndarray, spec: EmbeddingSpec) -> torch.Tensor:
    """[rows, width] of the engine's dtype, sharing the array's memory."""
    if not isinstance(array, np.ndarray) or array.dtype != CARRIER[spec.dtype]:
        found = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise EmbeddingError(f"an array of {found}, {spec.dtype} travels as {CARRIER[spec.dtype]}")
    if array.ndim != 2 or array.shape[1] != spec.width or array.shape[0] == 0:
        raise EmbeddingError(f"an array of shape {array.shape}, embeddings are [rows, {spec.width}]")
    tensor = torch.from_numpy(array)
    if spec.dtype == "bfloat16":
        tensor = tensor.view(torch.bfloat16)
    # Both ends carry NaN on and infinity is an end, so two numbers tell of all; 25 times faster than torch.isfinite.
    if not torch.isfinite(torch.stack(torch.aminmax(tensor))).all():
        raise EmbeddingError("an embedding holds a value that is not finite")
    return tensor
