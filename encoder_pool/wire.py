"""What crosses the border of the encoder pool: numpy arrays and small frozen dataclasses.

No torch here: the Router imports this module too. An embedding travels as one C-contiguous numpy array of shape
[tiles * tokens_per_tile, text_width]: float32 as itself, bfloat16 as its bits in uint16 (numpy has no bfloat16), so
that Ray maps it from shared memory without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EmbeddingDtype = Literal["bfloat16", "float32"]

# numpy's name of the array that carries each embedding dtype.
CARRIER: dict[EmbeddingDtype, str] = {"bfloat16": "uint16", "float32": "float32"}


@dataclass(frozen=True, slots=True)
class ImageShard:
    """A run of consecutive tiles of one image, as the Router asks for it.

    hash: content hash of the whole image, hex; names the image in logs and in vLLM's caches.
    tiles: number of tiles in this shard, at least 1.
    aspect: (high, wide), the grid of the whole image, without its global tile.
    """

    hash: str
    tiles: int
    aspect: tuple[int, int]


@dataclass(frozen=True, slots=True)
class EmbeddingMeta:
    """The last item of `EncoderPool.encode`; it comes once every array before it exists.

    n: how many arrays came before it, one for each shard, in the order asked.
    dtype: the dtype of the embeddings.
    fingerprint: of the vision weights that made them (see fingerprint.py).
    tile_bytes: size of one tile's embedding, in bytes.
    images: the shards as encoded; the receiver compares their tiles and aspect with what it asked for.
    """

    n: int
    dtype: EmbeddingDtype
    fingerprint: str
    tile_bytes: int
    images: tuple[ImageShard, ...]


@dataclass(frozen=True, slots=True)
class HandOff:
    """What goes to a decoder beside the arrays: the images of one request, whole and in prompt order.

    The arrays follow in the same order; an image that was encoded in several shards takes several consecutive arrays,
    whose rows add up to tiles * tokens_per_tile.
    """

    dtype: EmbeddingDtype
    fingerprint: str
    images: tuple[ImageShard, ...]
