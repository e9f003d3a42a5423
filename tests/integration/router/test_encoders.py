"""Four real encoder replicas behind the Router's own client of the pool."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
import ray
from ray import serve
from ray.serve.config import RequestRouterConfig

from encoder_pool.deployment import EncoderPool
from encoder_pool.settings import EncoderSettings, ModelSettings
from encoder_pool.wire import ImageShard
from router import handoff
from router.embedding_store import CutImage
from router.encoders import Encoders
from router.errors import ApiError
from tests.application import ROOT
from tests.cluster import actors

REPLICAS = 4
PLAN = json.loads((ROOT / "tests" / "cases" / "plan" / "shards.json").read_text())


@pytest.fixture(scope="module")
def handle(three_raylets, tiny_checkpoint):
    settings = EncoderSettings(replicas=REPLICAS, cpu_threads=1)
    model = ModelSettings(source=str(tiny_checkpoint), dtype="float32")
    pool = EncoderPool.options(
        num_replicas=REPLICAS,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=100,
        request_router_config=RequestRouterConfig(request_router_class="router.shard_router:TileRouter"),
        health_check_period_s=1,
    ).bind(model, settings)
    yield serve.run(pool, name="four", route_prefix=None)
    serve.delete("four")


def cut(seed: int, tiles: int, aspect: tuple[int, int]) -> CutImage:
    pixels = np.random.default_rng(seed).integers(0, 256, (tiles, 3, 336, 336), dtype=np.uint8)
    return CutImage(ImageShard(f"{seed:064x}", tiles, aspect), pixels)


async def encoded_tiles(handle) -> list[int]:
    return [stats["encoded_tiles"] for stats in await handle.broadcast("stats").results_async()]


async def encode(handle, images, min_tiles):
    """Each image's embedding, its shards joined."""
    encoders = Encoders(handoff.by_reference(handle), min_tiles=min_tiles, timeout_s=60)
    embeddings = await encoders.encode(images, "test")
    return [np.concatenate(await asyncio.gather(*embedding.refs)) for embedding in embeddings]


async def test_a_17_tile_image_is_encoded_by_all_four(handle):
    before = await encoded_tiles(handle)
    image = cut(0, 17, (4, 4))
    [split] = await encode(handle, [image], min_tiles=1)
    spent = sorted(after - start for after, start in zip(await encoded_tiles(handle), before, strict=True))
    assert spent == [4, 4, 4, 5]
    [whole] = await encode(handle, [image], min_tiles=17)
    assert np.linalg.norm(split - whole) / np.linalg.norm(whole) < 1e-5


async def test_every_count_of_tiles_is_the_same_split_and_whole(handle):
    images = [cut(1, 5, (2, 2)), cut(2, 1, (1, 1)), cut(3, 3, (1, 2)), cut(4, 1, (1, 1))]
    split = await encode(handle, images, min_tiles=1)
    whole = await encode(handle, images, min_tiles=100)
    assert [a.shape for a in split] == [(image.image.tiles * 144, 128) for image in images]
    for a, b in zip(split, whole, strict=True):
        assert np.linalg.norm(a - b) / np.linalg.norm(b) < 1e-5


async def test_fewer_tiles_than_replicas(handle):
    before = await encoded_tiles(handle)
    async with asyncio.timeout(10):
        [one] = await encode(handle, [cut(5, 1, (1, 1))], min_tiles=1)
    assert one.shape == (144, 128)
    spent = sorted(after - start for after, start in zip(await encoded_tiles(handle), before, strict=True))
    assert spent == [0, 0, 0, 1]


@pytest.mark.parametrize("shards", PLAN["ranks"])
async def test_any_number_of_shards_gives_what_one_gives(handle, monkeypatch, shards):
    """Fewer tiles than shards, and counts that no number of shards divides; eight are two for each replica."""
    requests = [
        [cut(i, tiles, (1, tiles)) for i in range(images)] for tiles in PLAN["tiles"] for images in PLAN["images"]
    ]
    whole = [await encode(handle, images, min_tiles=1000) for images in requests]
    monkeypatch.setattr(handoff, "replica_count", lambda handle: shards)
    async with asyncio.timeout(60):
        split = [await encode(handle, images, min_tiles=1) for images in requests]
    for got, want in zip(split, whole, strict=True):
        for a, b in zip(got, want, strict=True):
            assert np.linalg.norm(a - b) / np.linalg.norm(b) < 1e-5


@pytest.fixture
def narrow(three_raylets, tiny_checkpoint):
    """A pool of one encoder that takes one call at a time, with one more waiting."""
    pool = EncoderPool.options(
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=1,
        max_queued_requests=1,
        request_router_config=RequestRouterConfig(request_router_class="router.shard_router:TileRouter"),
    ).bind(ModelSettings(source=str(tiny_checkpoint), dtype="float32"), EncoderSettings(cpu_threads=1))
    yield serve.run(pool, name="narrow", route_prefix=None)
    serve.delete("narrow")


async def test_a_full_pool_refuses_for_now_and_answers_what_it_took(narrow):
    images = [cut(i, 5, (2, 2)) for i in range(20)]
    results = await asyncio.gather(*(encode(narrow, [image], 100) for image in images), return_exceptions=True)
    refused = [result for result in results if isinstance(result, BaseException)]
    assert 0 < len(refused) < 20
    assert {(type(error), error.status, error.retry_after_s) for error in refused} == {(ApiError, 429, 1)}
    assert (await encode(narrow, images[:1], 100))[0].shape == (5 * 144, 128)


async def test_an_encoder_killed_under_load_is_not_seen(handle):
    images = [cut(i, 5, (2, 2)) for i in range(10, 22)]
    expected = [(await encode(handle, [image], min_tiles=1))[0] for image in images]
    tasks = [asyncio.create_task(encode(handle, [image], min_tiles=1)) for image in images]
    await asyncio.sleep(0.05)
    ray.kill(actors("SERVE_REPLICA::four#")[0])
    for [got], want in zip(await asyncio.gather(*tasks), expected, strict=True):
        assert np.linalg.norm(got - want) / np.linalg.norm(want) < 1e-5
