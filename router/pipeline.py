"""The way of a chat request through the pools: images to tiles, tiles to embeddings, embeddings to an answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import numpy as np
from ray.exceptions import ObjectLostError, RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from encoder_pool.errors import QueueFullError
from encoder_pool.wire import HandOff, ImageShard
from llm_pool.reply import Reply
from router import handoff
from router.config import AppConfig
from router.content_hash import content_hash
from router.errors import ApiError, bad_request, unavailable
from router.image_decode import decode as decode_image
from router.image_source import ImageSource
from router.request_images import ImagePart, split_images
from router.tiling import Tiler, Tiles

logger = logging.getLogger("ray.serve")

# A replica that dies under a request is nothing the client should see; a third death in a row is no accident.
ENCODE_ATTEMPTS = 3
DECODE_ATTEMPTS = 2
BROKEN_STREAM = ApiError(500, "the decoder failed while it was answering", code="decoder_failed")


@dataclass(frozen=True, slots=True)
class Answer:
    """head: the status and the whole body, or a stream's first chunk; rest: the chunks after it."""

    head: Reply
    rest: AsyncIterator[str]


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """An image that was fetched, decoded and cut."""

    shard: ImageShard
    tiles: Tiles


class Pipeline:
    """Answers chat requests; one for the life of a Router."""

    def __init__(
        self, config: AppConfig, encoder: DeploymentHandle, llm: DeploymentHandle, source: ImageSource, tiler: Tiler
    ) -> None:
        self._settings = config.router
        self._dtype = config.model.dtype
        self._encoder = handoff.by_reference(encoder)
        self._llm = handoff.by_reference(llm)
        self._source = source
        self._tiler = tiler
        self._threads = ThreadPoolExecutor(self._settings.image_threads, thread_name_prefix="image")
        # Of the encoders' weights; part of every content hash. Known from the first encode, the warm-up's.
        self._fingerprint = ""

    def missing(self) -> list[str]:
        """The pools without a living replica."""
        pools = {"EncoderPool": self._encoder, "LLMPool": self._llm}
        return [name for name, handle in pools.items() if not handoff.has_replicas(handle)]

    async def answer(self, body: dict[str, Any], request_id: str) -> Answer:
        """Takes a validated chat request to its answer's beginning.

        The decoder's own refusals come as a Reply with their status. Raises ApiError for everything that the Router
        refuses or that went wrong between the pools.
        """
        body, parts = split_images(body, self._settings.max_images)
        max_tiles = self._max_tiles(body)
        body.pop("mm_processor_kwargs", None)
        images = await self._prepare(parts, max_tiles)
        for attempt in range(1, DECODE_ATTEMPTS + 1):
            encoded = await self._encode(images, request_id) if images else None
            try:
                return await self._decode(body, images, encoded, request_id)
            except (RayActorError, ObjectLostError) as error:
                logger.warning(
                    "request %s: decode attempt %d failed with %s", request_id, attempt, type(error).__name__
                )
        raise unavailable("the decoders failed to answer; try again", "decoder_unavailable")

    def _max_tiles(self, body: dict[str, Any]) -> int:
        """The canvas limit that a request sets through vLLM's `mm_processor_kwargs`, or the model's own."""
        kwargs = body.get("mm_processor_kwargs") or {}
        unknown = sorted(set(kwargs) - {"max_patches"})
        if unknown:
            raise bad_request(
                f"mm_processor_kwargs: only max_patches is supported, not {unknown[0]!r}", "mm_processor_kwargs"
            )
        max_tiles = kwargs.get("max_patches", self._tiler.max_tiles)
        if type(max_tiles) is not int or not 1 <= max_tiles <= self._tiler.max_tiles:
            raise bad_request(
                f"mm_processor_kwargs.max_patches: must be a whole number from 1 to {self._tiler.max_tiles}",
                "mm_processor_kwargs.max_patches",
            )
        return max_tiles

    async def _prepare(self, parts: list[ImagePart], max_tiles: int) -> list[PreparedImage]:
        """All images at once; the first failure cancels the others."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._prepare_one(part, max_tiles)) for part in parts]
        except* ApiError as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _prepare_one(self, part: ImagePart, max_tiles: int) -> PreparedImage:
        data = await self._source.read(part.url, part.path)
        limit = 1 if part.one_tile else max_tiles
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._cut, data, part.path, limit)

    def _cut(self, data: bytes, path: str, max_tiles: int) -> PreparedImage:
        image = decode_image(data, path, self._settings.max_image_pixels)
        tiles = self._tiler.tile(image, max_tiles)
        name = content_hash(data, fingerprint=self._fingerprint, dtype=self._dtype, max_tiles=max_tiles)
        return PreparedImage(ImageShard(name, len(tiles.pixels), tiles.aspect), tiles)

    async def _encode(self, images: list[PreparedImage], request_id: str) -> handoff.Encoded:
        tiles = np.concatenate([image.tiles.pixels for image in images])
        shards = [image.shard for image in images]
        for attempt in range(1, ENCODE_ATTEMPTS + 1):
            try:
                async with asyncio.timeout(self._settings.encode_timeout_s):
                    encoded = await handoff.encode(self._encoder, tiles, shards)
                break
            except RayActorError:
                logger.warning("request %s: an encoder died under encode attempt %d", request_id, attempt)
            except (handoff.PoolGoneError, DeploymentUnavailableError):
                raise unavailable(
                    "no encoder is running; text-only requests are served", "encoder_unavailable"
                ) from None
            except TimeoutError:
                raise unavailable("the encoders did not answer in time", "encoder_timeout") from None
            except (BackPressureError, QueueFullError):
                raise ApiError(429, "too many pictures are waiting to be encoded", retry_after_s=1) from None
            except RayTaskError as error:
                logger.error("request %s: the encoder failed: %s", request_id, error.cause)
                raise ApiError(500, "the encoder failed on this request's pictures", code="encoder_failed") from None
        else:
            raise unavailable("the encoders failed; try again", "encoder_unavailable")
        if encoded.meta.images != tuple(shards):
            raise ApiError(500, "an encoder answered for other images than it was asked for", code="encoder_failed")
        self._fingerprint = encoded.meta.fingerprint
        return encoded

    async def _decode(
        self,
        body: dict[str, Any],
        images: list[PreparedImage],
        encoded: handoff.Encoded | None,
        request_id: str,
    ) -> Answer:
        hand_off = None
        if encoded is not None:
            shards = tuple(image.shard for image in images)
            hand_off = HandOff(encoded.meta.dtype, encoded.meta.fingerprint, shards)
        items = handoff.decode(self._llm, body, hand_off, request_id, encoded.refs if encoded else [])
        try:
            async with asyncio.timeout(self._settings.first_chunk_timeout_s):
                head = await anext(items)
        except BaseException as error:
            await items.aclose()
            if isinstance(error, handoff.PoolGoneError | DeploymentUnavailableError):
                raise unavailable("no decoder is running", "decoder_unavailable") from None
            if isinstance(error, TimeoutError):
                raise unavailable("the decoder did not answer in time", "decoder_timeout") from None
            if isinstance(error, BackPressureError):
                raise ApiError(429, "too many requests are waiting", retry_after_s=1) from None
            raise
        return Answer(head, _rest(items, request_id))


async def _rest(items: AsyncGenerator[Any, None], request_id: str) -> AsyncIterator[str]:
    """A stream's chunks after the first; a decoder that dies becomes an error event, and no [DONE] follows."""
    async with aclosing(items):
        try:
            async for chunk in items:
                yield chunk
        except RayActorError as error:
            logger.warning("request %s: stream broken off by %s", request_id, type(error).__name__)
            yield f"data: {BROKEN_STREAM.body()}\n\n"
