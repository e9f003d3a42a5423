"""Embeddings that a client brings along, for callers who run an encoder of their own; off unless the operator says so.

{"type": "image_embeds", "image_embeds": {"data": BASE64, "aspect_ratio": [HIGH, WIDE]}}, where `data` is a file of the
format .npy or safetensors with one array [tiles * tokens_per_tile, text_width] of float32, float16 or (safetensors)
bfloat16. Neither format can hold code, and neither reader takes more memory than the data that came.
"""

from __future__ import annotations

import asyncio
import base64
import io
import math
from dataclasses import dataclass

import numpy as np
import ray
import safetensors
import torch
from numpy.typing import NDArray

from encoder_pool.checkpoint import read_geometry
from encoder_pool.wire import EmbeddingDtype, HandOff, ImageShard
from llm_pool.embeddings import EmbeddingSpec, check_hand_off, rebuild
from llm_pool.errors import EmbeddingError
from router.config import AppConfig
from router.embedding_store import Embedding
from router.errors import ApiError, bad_request, unavailable
from router.request_images import EmbeddingPart
from router.tiling import tiles_of

NPY_MAGIC = b"\x93NUMPY"
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True, slots=True, eq=False)
class ClientEmbedding:
    """An embedding that the decoder can use. identity: bytes that no other embedding has; rows: see wire.py."""

    identity: bytes
    aspect: tuple[int, int]
    tiles: int
    rows: NDArray[np.generic]

    async def put(self, name: str, dtype: EmbeddingDtype, fingerprint: str) -> Embedding:
        """Puts the rows into the object store, where the decoder's node finds them, under the content hash `name`."""
        ref = await asyncio.to_thread(ray.put, self.rows)
        return Embedding(ImageShard(name, self.tiles, self.aspect), dtype, fingerprint, (ref,), self.rows.nbytes)


class ClientEmbeddings:
    """Reads and checks what clients send; max_grid: tiles of a canvas at most, without the global one."""

    def __init__(self, config: AppConfig, max_grid: int) -> None:
        geometry = read_geometry(config.model)
        self._max_bytes = config.router.max_image_bytes
        self._spec = EmbeddingSpec(
            width=geometry.text_width,
            tokens_per_tile=geometry.tokens_per_tile,
            max_grid=max_grid,
            dtype=config.model.dtype,
            fingerprint="",
        )

    async def read(self, part: EmbeddingPart, fingerprint: str) -> ClientEmbedding:
        """fingerprint: of the encoders' weights, which the client vouches for; "" while no encoder has said it.

        Raises ApiError 400 where the decoder could not use it: too many bytes, another format, shape, dtype or number
        of tiles, a value that is not finite; 503 while the application starts.
        """
        if not fingerprint:
            raise unavailable("starting: no picture has been encoded yet", "starting", retry_after_s=5)
        return await asyncio.to_thread(self._read, part)

    def _read(self, part: EmbeddingPart) -> ClientEmbedding:
        if len(part.data) // 4 * 3 > self._max_bytes:
            message = f"{part.path}: the embedding has more than {self._max_bytes} bytes"
            raise bad_request(message, part.path, "image_too_large")
        try:
            file = base64.b64decode(part.data, validate=True)
            given = _from_npy(file) if file.startswith(NPY_MAGIC) else _from_safetensors(file)
        except Exception:
            # Readers of damaged files raise what they stumble over.
            raise _unfit(part, "`data` must be base64 of one array in .npy or safetensors format") from None
        converted = given.to(getattr(torch, self._spec.dtype)).contiguous()
        rows = (converted.view(torch.uint16) if self._spec.dtype == "bfloat16" else converted).numpy()
        high, wide = part.aspect
        tiles = tiles_of(part.aspect)
        hand_off = HandOff(self._spec.dtype, self._spec.fingerprint, (ImageShard("", tiles, part.aspect),))
        try:
            check_hand_off(hand_off, self._spec)
            rebuild(hand_off.images, [rows], self._spec)
        except EmbeddingError as error:
            raise _unfit(part, error.message) from None
        return ClientEmbedding(f"embedding {high} {wide} ".encode() + file, part.aspect, tiles, rows)


def _unfit(part: EmbeddingPart, message: str) -> ApiError:
    return bad_request(f"{part.path}: {message}", part.path, "bad_embeddings")


def _from_npy(file: bytes) -> torch.Tensor:
    """Raises ValueError. The shape is held against the bytes that came before anything of that size is made."""
    stream = io.BytesIO(file)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError("another version")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    if by_columns or dtype not in (np.dtype("<f4"), np.dtype("<f2")):
        raise ValueError("another layout")
    if math.prod(shape) * dtype.itemsize != len(file) - stream.tell():
        raise ValueError("another size")
    return torch.from_numpy(np.frombuffer(file, dtype, offset=stream.tell()).reshape(shape).copy())


def _from_safetensors(file: bytes) -> torch.Tensor:
    """Raises SafetensorError and ValueError."""
    ((_, tensor),) = safetensors.deserialize(file)
    if tensor["dtype"] not in DTYPES:
        raise ValueError("another dtype")
    return torch.frombuffer(bytearray(tensor["data"]), dtype=DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
