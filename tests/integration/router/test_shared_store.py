"""Two Routers' sides of the store, without their endpoints, before one real encoder and the real store actors."""

from __future__ import annotations

import asyncio
import math
import os
import time

import numpy as np
import pytest
import ray
from ray import serve

from encoder_pool.deployment import EncoderPool
from encoder_pool.settings import EncoderSettings, ModelSettings
from encoder_pool.wire import ImageShard
from router.config import AppConfig
from router.embedding_store import CutImage
from router.store_actor import store_actors
from tests.cluster import bytes_used, kill_actors

APP = "stores"
ACTORS = 2
TILES = 5
IMAGE_BYTES = TILES * 144 * 128 * 4
KEPT_IMAGES = 8
BUSY_TILES = 150
SETTLE_S = 20.0


def name(seed: int) -> str:
    """A hash; the lowest bit of the seed decides its actor."""
    return f"{seed:08x}{seed:056x}"


def cut(seed: int) -> CutImage:
    return CutImage(ImageShard(name(seed), TILES, (2, 2)), tiles(TILES, seed))


def tiles(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3, 336, 336), dtype=np.uint8)


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0}, max_ongoing_requests=1000, health_check_period_s=1)
class Front:
    """A Router's side of the store."""

    def __init__(self, config: AppConfig, pool) -> None:
        from router import handoff
        from router.encoders import Encoders
        from router.shared_store import embedding_store

        self.pool = handoff.by_reference(pool)
        encoders = Encoders(self.pool, min_tiles=100, timeout_s=60)
        self.store = embedding_store(config.router, encoders.encode)

    async def encode(self, *seeds: int) -> list[bytes]:
        """The first bytes of the embeddings of pictures, each random but for its seed."""
        embeddings = await self.store.encode([cut(seed) for seed in seeds], "test")
        return [(await embedding.refs[0])[0].tobytes() for embedding in embeddings]

    async def find(self, seed: int) -> bool:
        return await self.store.find(name(seed)) is not None

    async def encode_and_die(self, seed: int) -> None:
        """Ends its process while the store waits for the encoder on its behalf."""
        call = asyncio.ensure_future(self.encode(seed))
        await asyncio.sleep(1)
        assert not call.done()
        os._exit(1)


@pytest.fixture(scope="module")
def fronts(three_raylets, tiny_checkpoint):
    """A handle of the deployment of both."""
    config = AppConfig.model_validate(
        {
            "model": {"source": str(tiny_checkpoint), "dtype": "float32"},
            "router": {
                "replicas": 2,
                "embedding_store_actors": ACTORS,
                "embedding_store_bytes": KEPT_IMAGES * IMAGE_BYTES,
            },
        }
    )
    pool = EncoderPool.options(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=1000).bind(
        ModelSettings(**config.model.model_dump()), EncoderSettings(cpu_threads=1, max_queued_tiles=1_000_000)
    )
    yield serve.run(
        Front.options(deployment_actors=store_actors(config)).bind(config, pool), name=APP, route_prefix=None
    )
    serve.delete(APP)


@pytest.fixture(scope="module")
def encoder(fronts):
    return serve.get_deployment_handle("EncoderPool", APP)


async def stats(encoder) -> dict[str, int]:
    return await encoder.stats.remote()


async def others_queued(encoder) -> int:
    """Tiles that wait behind those of `occupy`, which must not have run out."""
    queued = (await stats(encoder))["queued_tiles"]
    assert queued >= BUSY_TILES
    return queued % BUSY_TILES


async def occupy(encoder, seconds: float = 5.0) -> list:
    """Calls that keep the encoder busy for that long, however fast it is, and everything else waiting."""
    held = ray.put(tiles(BUSY_TILES))

    def call():
        return encoder.options(stream=True).encode.remote(held, [ImageShard(name(0), BUSY_TILES, (1, 1))])

    started = time.monotonic()
    async for _ in call():
        pass
    each = time.monotonic() - started
    busy = [call() for _ in range(math.ceil(seconds / each))]
    await asyncio.sleep(0.3)
    return busy


async def until(condition) -> None:
    deadline = time.monotonic() + SETTLE_S
    while not await condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


def end(busy: list) -> None:
    for call in busy:
        call.cancel()


async def test_what_came_through_one_router_is_found_by_the_other(fronts, encoder):
    before = await stats(encoder)
    [one, two] = await fronts.encode.remote(100, 101)
    assert await fronts.broadcast("find", 100).results_async() == [True, True]
    assert await fronts.broadcast("encode", 101, 100).results_async() == [[two, one]] * 2
    assert (await stats(encoder))["encoded_tiles"] - before["encoded_tiles"] == 2 * TILES


async def test_both_routers_together_cost_one_encode(fronts, encoder):
    before = await stats(encoder)
    calls = [fronts.broadcast("encode", 110).results_async() for _ in range(25)]
    answers = [answer for pair in await asyncio.gather(*calls) for answer in pair]
    assert answers == [answers[0]] * 50
    assert (await stats(encoder))["encoded_tiles"] - before["encoded_tiles"] == TILES


async def test_a_leader_that_leaves_does_not_take_its_followers_along(fronts, encoder):
    busy = await occupy(encoder)
    leader = fronts.encode.remote(120)
    await asyncio.sleep(0.5)
    followers = fronts.broadcast("find", 120).results_async()
    followers = asyncio.ensure_future(followers)
    await asyncio.sleep(0.5)
    leader.cancel()
    assert not followers.done()
    end(busy)
    assert await followers == [True, True]


async def test_the_last_to_leave_ends_the_encode(fronts, encoder):
    busy = await occupy(encoder)
    leaving = [fronts.encode.remote(130) for _ in range(4)]

    async def queued() -> bool:
        return await others_queued(encoder) == TILES

    async def gone() -> bool:
        return await others_queued(encoder) == 0

    await until(queued)
    for call in leaving:
        call.cancel()
    await until(gone)
    end(busy)
    assert not await fronts.find.remote(130)


async def test_a_router_that_dies_waits_no_more(fronts, encoder):
    await fronts.encode.remote(140)
    busy = await occupy(encoder, 15)
    with pytest.raises(Exception, match="died"):
        await fronts.encode_and_die.remote(141)

    async def gone() -> bool:
        return await others_queued(encoder) == 0

    await until(gone)
    end(busy)
    assert not await fronts.find.remote(141)
    assert await fronts.find.remote(140), "what it had encoded is not lost"


async def test_what_is_pushed_out_leaves_the_object_store(fronts):
    for seed in range(200, 200 + 2 * KEPT_IMAGES):
        await fronts.encode.remote(seed)
    full = bytes_used()
    for seed in range(300, 300 + 3 * KEPT_IMAGES):
        await fronts.encode.remote(seed)

    async def level() -> bool:
        return bytes_used() <= full

    await until(level)
    assert not await fronts.find.remote(200)
    assert await fronts.find.remote(300 + 3 * KEPT_IMAGES - 1)


async def test_without_a_store_actor_routers_encode_alone_until_it_is_back(fronts, encoder):
    await fronts.encode.remote(400)

    async def two_fronts() -> bool:
        return len(await fronts.broadcast("find", 400).results_async()) == 2

    # One that another test ended may still be starting again.
    await until(two_fronts)
    assert kill_actors(f"SERVE_DEPLOYMENT_ACTOR::{APP}") == ACTORS
    before = await stats(encoder)
    answers = await fronts.broadcast("encode", 400).results_async()
    assert answers[0] == answers[1]
    assert (await stats(encoder))["encoded_tiles"] - before["encoded_tiles"] == 2 * TILES

    async def shared_again() -> bool:
        await fronts.encode.remote(401)
        return await fronts.broadcast("find", 401).results_async() == [True, True]

    await until(shared_again)
