"""The encoder pool as the Router sees it: images in, embeddings out, whatever happens to single replicas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from ray import ObjectRef
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from encoder_pool.errors import QueueFullError
from encoder_pool.shard_plan import Piece, plan_shards
from encoder_pool.spans import span
from encoder_pool.wire import EmbeddingMeta, ImageShard
from router import handoff
from router.embedding_store import CutImage, Embedding, Promise, unheard
from router.errors import ApiError, unavailable
from router.gather import gather

logger = logging.getLogger("ray.serve")

# A replica that dies under a request is nothing the client should see; a third death in a row is no accident.
ATTEMPTS = 3


class Encoders:
    """Spreads the tiles of a request over the pool's replicas and gathers what they made.

    min_tiles: the fewest tiles that are worth a call of their own. timeout_s: for all of a request's calls together.
    """

    def __init__(self, handle: DeploymentHandle, *, min_tiles: int, timeout_s: float) -> None:
        self._handle = handle
        self._min_tiles = min_tiles
        self._timeout_s = timeout_s
        self._last: EmbeddingMeta | None = None

    async def encode(self, images: Sequence[CutImage], request_id: str, promise: Promise = unheard) -> list[Embedding]:
        """The embeddings of `images`, in order.

        promise: told what this will return as soon as all replicas have taken their shards, if then nothing goes wrong
        and their weights are those of the last encode.
        Raises ApiError: 429 where the queues are full, 503 where no replica is left or none answers in time, 500 where
        the encoder fails on these images or its replicas hold different weights.
        """
        tiles = [cut.image.tiles for cut in images]
        plan = plan_shards(tiles, handoff.replica_count(self._handle), self._min_tiles)
        promised: dict[int, list[ObjectRef]] = {}

        def taken(index: int, refs: list[ObjectRef]) -> None:
            promised[index] = refs
            if self._last is not None and len(promised) == len(plan):
                meta = self._last
                promise(_join(images, plan, [handoff.Encoded(meta, promised[shard]) for shard in range(len(plan))]))

        try:
            async with asyncio.timeout(self._timeout_s):
                encoded = await gather(
                    self._encode_shard(images, shard, request_id, partial(taken, index))
                    for index, shard in enumerate(plan)
                )
        except TimeoutError:
            # Ours, or that of an encoder which had not begun.
            raise unavailable("the encoders did not answer in time", "encoder_timeout") from None
        self._last = encoded[0].meta
        return _join(images, plan, encoded)

    async def _encode_shard(
        self,
        images: Sequence[CutImage],
        shard: list[Piece],
        request_id: str,
        taken: Callable[[list[ObjectRef]], None],
    ) -> handoff.Encoded:
        tiles = np.concatenate([images[piece.image].pixels[piece.start : piece.stop] for piece in shard])
        asked = [
            ImageShard(images[piece.image].image.hash, piece.tiles, images[piece.image].image.aspect) for piece in shard
        ]
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with span("encode_call"):
                    encoded = await handoff.encode(self._handle, tiles, asked, self._timeout_s, taken)
            except RayActorError:
                logger.warning("request %s: an encoder died under encode attempt %d", request_id, attempt)
                continue
            except (handoff.PoolGoneError, DeploymentUnavailableError):
                message = "no encoder is running; text-only requests are served"
                raise unavailable(message, "encoder_unavailable") from None
            except (BackPressureError, QueueFullError):
                raise ApiError(429, "too many pictures are waiting to be encoded", retry_after_s=1) from None
            except TimeoutError:
                raise
            except RayTaskError as error:
                logger.error("request %s: the encoder failed: %s", request_id, error.cause)
                raise ApiError(500, "the encoder failed on this request's pictures", code="encoder_failed") from None
            if encoded.meta.images != tuple(asked):
                raise ApiError(500, "an encoder answered for other images than it was asked for", code="encoder_failed")
            return encoded
        raise unavailable("the encoders failed; try again", "encoder_unavailable")


def _join(images: Sequence[CutImage], plan: list[list[Piece]], shards: list[handoff.Encoded]) -> list[Embedding]:
    """The pieces of all shards, back to their images."""
    first = shards[0].meta
    if any((shard.meta.fingerprint, shard.meta.dtype) != (first.fingerprint, first.dtype) for shard in shards):
        raise unavailable("the encoders hold different weights", "encoder_mismatch")
    refs = [
        (piece.image, ref)
        for shard, pieces in zip(shards, plan, strict=True)
        for piece, ref in zip(pieces, shard.refs, strict=True)
    ]
    return [
        Embedding(
            image=cut.image,
            dtype=first.dtype,
            fingerprint=first.fingerprint,
            refs=tuple(ref for owner, ref in refs if owner == index),
            bytes=cut.image.tiles * first.tile_bytes,
        )
        for index, cut in enumerate(images)
    ]
