"""The way of a request through the pools: images to tiles, tiles to embeddings, embeddings to an answer.

A decoder is called as soon as encoders have taken the tiles, with references of embeddings that do not exist yet: it
makes its prompt while they encode. The encode's outcome still decides what a client gets.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ray.exceptions import RayActorError
from ray.serve.handle import DeploymentHandle

from encoder_pool.wire import ImageShard
from llm_pool.reply import Endpoint
from router import handoff
from router.cache_salt import with_tenants_salt
from router.client_embeddings import ClientEmbedding, ClientEmbeddings
from router.config import AppConfig
from router.content_hash import content_hash
from router.decoders import Answer, Decoders
from router.embedding_store import CutImage, Embedding, Promise
from router.encoders import Encoders
from router.errors import bad_request, unavailable
from router.gather import gather
from router.image_cutter import ImageCutter, Uncut
from router.image_source import ImageSource
from router.memory_budget import MemoryBudget
from router.metrics import RouterMetrics
from router.request_images import EmbeddingPart, ImagePart, split_images
from router.shared_store import embedding_store
from router.tiling import Tiler

logger = logging.getLogger("ray.serve")

DECODE_ATTEMPTS = 2
# Requests that may wait in decoders for their embeddings: when encoders are behind, decoders' places are for others.
MAX_EARLY = 8


@dataclass(frozen=True, slots=True)
class _Pictures:
    """The images of one request. max_tiles: of a canvas; tenant: whose they are."""

    parts: list[ImagePart | EmbeddingPart]
    max_tiles: int
    tenant: str


@dataclass(frozen=True, slots=True)
class _Named:
    """An image, its content hash known, and how many tiles it has; content: undecoded, or embedded by the client."""

    path: str
    hash: str
    tiles: int
    content: Uncut | ClientEmbedding


class Pipeline:
    """Answers requests; one for the life of a Router."""

    def __init__(
        self,
        config: AppConfig,
        encoder: DeploymentHandle,
        llm: DeploymentHandle,
        source: ImageSource,
        tiler: Tiler,
        metrics: RouterMetrics,
    ) -> None:
        self._settings = config.router
        self._dtype = config.model.dtype
        self._quantization = config.encoder.quantization
        self._encoder = handoff.by_reference(encoder)
        self._llm = handoff.by_reference(llm)
        self._metrics = metrics
        self._early = 0
        self._source = source
        self._tiler = tiler
        self._cutter = ImageCutter(self._settings, tiler)
        self._client_embeddings: ClientEmbeddings | None = None
        if self._settings.accept_image_embeds:
            self._client_embeddings = ClientEmbeddings(config, tiler.max_tiles)
        encoders = Encoders(
            self._encoder, min_tiles=config.encoder.min_shard_tiles, timeout_s=self._settings.encode_timeout_s
        )
        self._store = embedding_store(self._settings, encoders.encode)
        self._budget = MemoryBudget(self._settings.in_flight_bytes)
        self._decoders = Decoders(self._llm, self._settings, self._budget, metrics)
        # Of the encoders' weights, part of every content hash, and of one tile's embedding. Known from the first
        # encode, the warm-up's.
        self._fingerprint = ""
        self._tile_bytes = 0

    def missing(self) -> list[str]:
        """The pools without a living replica."""
        pools = {"EncoderPool": self._encoder, "LLMPool": self._llm}
        return [name for name, handle in pools.items() if not handoff.replica_count(handle)]

    async def answer(self, endpoint: Endpoint, body: dict[str, Any], request_id: str, tenant: str = "") -> Answer:
        """Takes a validated request of `endpoint` to its answer's beginning; shares no cache with another tenant.

        The decoder's own refusals come as a Reply with their status. Raises ApiError for everything that the Router
        refuses or that went wrong between the pools.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        body, parts = split_images(
            endpoint, body, self._settings.max_images, embeddings=self._settings.accept_image_embeds
        )
        pictures = _Pictures(parts, self._max_tiles(body), tenant)
        body.pop("mm_processor_kwargs", None)
        body = with_tenants_salt(body, tenant)
        with ExitStack() as held:
            answer = await self._answer(endpoint, body, pictures, request_id, held)
        self._metrics.began("image" if parts else "text", loop.time() - started)
        return answer

    async def _answer(
        self, endpoint: Endpoint, body: dict[str, Any], pictures: _Pictures, request_id: str, held: ExitStack
    ) -> Answer:
        """held: keeps the embeddings' room until a decode that has begun holds it itself."""
        for attempt in range(1, DECODE_ATTEMPTS + 1):
            try:
                answer, embeddings = await self._attempt(endpoint, body, pictures, request_id, held)
            except RayActorError:
                logger.warning("request %s: a decoder died under decode attempt %d", request_id, attempt)
                self._metrics.retried("decoder_died")
                continue
            if answer.head.lost:
                logger.warning("request %s: an embedding was lost before decode attempt %d", request_id, attempt)
                await self._store.drop(embedding.image.hash for embedding in embeddings)
                self._metrics.retried("embedding_lost")
            elif answer.head.retryable and attempt < DECODE_ATTEMPTS:
                logger.warning("request %s: a decoder could not answer on decode attempt %d", request_id, attempt)
                self._metrics.retried("decoder_died")
            else:
                return answer
        raise unavailable("the decoders failed to answer; try again", "decoder_unavailable")

    async def _attempt(
        self, endpoint: Endpoint, body: dict[str, Any], pictures: _Pictures, request_id: str, held: ExitStack
    ) -> tuple[Answer, list[Embedding]]:
        """An answer, and the embeddings of which it was made."""
        if not pictures.parts:
            return await self._decoders.answer(endpoint, body, [], request_id), []
        promised: asyncio.Future[list[Embedding]] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as group:
                embed = group.create_task(self._embed(pictures, request_id, held, promised))
                await asyncio.wait({embed, promised}, return_when=asyncio.FIRST_COMPLETED)
                early = None
                if promised.done() and self._early < MAX_EARLY:
                    self._early += 1
                    early = group.create_task(
                        self._decoders.answer(endpoint, body, promised.result(), request_id, embed)
                    )
                    embed.add_done_callback(self._embedded)
                    await asyncio.wait({embed, early}, return_when=asyncio.FIRST_COMPLETED)
                    if not embed.done() and _refused(early.result()):
                        embed.cancel()
                        return early.result(), promised.result()
                embeddings = await embed
                if early is not None and embeddings == promised.result():
                    return await early, embeddings
                if early is not None:
                    # An encoder failed and another one took its place.
                    early.cancel()
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return await self._decoders.answer(endpoint, body, embeddings, request_id), embeddings

    def _embedded(self, _: object) -> None:
        self._early -= 1

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

    async def _embed(
        self, pictures: _Pictures, request_id: str, held: ExitStack, promised: asyncio.Future[list[Embedding]]
    ) -> list[Embedding]:
        """The embeddings of a request's images, in order; leaving early gives up only what nobody else waits for.

        promised: set to what this will return, if that is known before and nothing goes wrong.
        """
        with self._metrics.stage("embed"):
            named = await gather(self._named(part, pictures) for part in pictures.parts)
            self._check_tiles(named)
            found = await gather(self._find(one) for one in named)
            held.enter_context(self._budget.hold({one.image.hash: self._bytes_of(one) for one in found}))
            cut = [one for one in found if isinstance(one, CutImage)]

            def promise(embeddings: list[Embedding]) -> None:
                if not promised.done():
                    promised.set_result(_completed(found, embeddings))

            with self._budget.hold({f"{one.image.hash}/tiles": one.pixels.nbytes for one in cut}):
                embeddings = _completed(found, await self._encode(cut, request_id, promise) if cut else [])
        first = embeddings[0]
        self._fingerprint = first.fingerprint
        self._tile_bytes = first.bytes // first.image.tiles
        return embeddings

    async def _encode(self, images: list[CutImage], request_id: str, promise: Promise) -> list[Embedding]:
        with self._metrics.stage("encode"):
            return await self._store.encode(images, request_id, promise)

    def _bytes_of(self, image: Embedding | CutImage) -> int:
        return image.bytes if isinstance(image, Embedding) else image.image.tiles * self._tile_bytes

    async def _named(self, part: ImagePart | EmbeddingPart, pictures: _Pictures) -> _Named:
        if isinstance(part, EmbeddingPart):
            assert self._client_embeddings is not None, "split_images refuses such parts otherwise"
            embedding = await self._client_embeddings.read(part, self._fingerprint)
            return _Named(part.path, self._hash(embedding.identity, 0, pictures.tenant), embedding.tiles, embedding)
        with self._metrics.stage("fetch"):
            data = await self._source.read(part.url, part.path, pictures.tenant)
        max_tiles = 1 if part.one_tile else pictures.max_tiles
        uncut = await self._cutter.look(data, part.path, max_tiles)
        return _Named(part.path, self._hash(data, max_tiles, pictures.tenant), uncut.tiles, uncut)

    def _hash(self, data: bytes, max_tiles: int, tenant: str) -> str:
        return content_hash(
            data,
            tenant=tenant,
            fingerprint=self._fingerprint,
            dtype=self._dtype,
            quantization=self._quantization,
            max_tiles=max_tiles,
        )

    def _check_tiles(self, named: list[_Named]) -> None:
        most = self._settings.max_tiles
        for one, tiles in zip(named, accumulate(one.tiles for one in named), strict=True):
            if tiles > most:
                message = f"{one.path}: with this picture the request has more than {most} tiles"
                raise bad_request(message, one.path, "too_many_tiles")

    async def _find(self, image: _Named) -> Embedding | CutImage:
        """The image's embedding if the client or the store has it, else the image, cut."""
        if isinstance(image.content, ClientEmbedding):
            return await image.content.put(image.hash, self._dtype, self._fingerprint)
        found = await self._store.find(image.hash)
        self._metrics.looked_up(found is not None)
        if found is not None:
            return found
        with self._metrics.stage("cut"):
            tiles = await self._cutter.cut(image.content)
        return CutImage(ImageShard(image.hash, len(tiles.pixels), tiles.aspect), tiles.pixels)


def _completed(found: list[Embedding | CutImage], encoded: list[Embedding]) -> list[Embedding]:
    """`found`, with the embeddings of its cut images in their places."""
    of_cut = iter(encoded)
    return [one if isinstance(one, Embedding) else next(of_cut) for one in found]


def _refused(answer: Answer) -> bool:
    """Whether the client is at fault, whatever becomes of its pictures."""
    return 400 <= answer.head.status < 500
