"""A pool of real encoders that follows its load, up and down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import numpy as np
import pytest
from ray import serve
from ray.serve.config import RequestRouterConfig

from encoder_pool.deployment import EncoderPool
from encoder_pool.settings import Autoscaling, EncoderSettings, ModelSettings
from encoder_pool.wire import ImageShard
from router import handoff
from router.autoscaling import replica_options
from router.embedding_store import CutImage
from router.encoders import Encoders

SCALING = Autoscaling(
    min_replicas=1, max_replicas=2, target_load=8, upscale_delay_s=0, downscale_delay_s=3, look_back_s=3
)
CLIENTS, TILES = 8, 5


@pytest.fixture
def handle(three_raylets, tiny_checkpoint):
    pool = EncoderPool.options(
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=100,
        request_router_config=RequestRouterConfig(request_router_class="router.shard_router:TileRouter"),
        health_check_period_s=1,
        graceful_shutdown_timeout_s=60,
        **replica_options(1, SCALING, gpus=0),
    ).bind(ModelSettings(source=str(tiny_checkpoint)), EncoderSettings(cpu_threads=1))
    yield handoff.by_reference(serve.run(pool, name="scaled", route_prefix=None))
    serve.delete("scaled")


async def until(condition: Callable[[], bool], clients: list[asyncio.Task[int]]) -> None:
    """Waits for the condition; fails with what a client met meanwhile."""
    deadline = time.monotonic() + 150
    while not condition():
        assert time.monotonic() < deadline
        for client in clients:
            if client.done():
                client.result()
        await asyncio.sleep(0.5)


@pytest.mark.slow  # replicas come and go
async def test_encoders_come_with_the_load_and_leave_without_a_loss(handle):
    encoders = Encoders(handle, min_tiles=17, timeout_s=120)
    pixels = np.zeros((TILES, 3, 336, 336), np.uint8)
    leave = [asyncio.Event() for _ in range(CLIENTS)]

    async def client(number: int) -> int:
        answered = 0
        while not leave[number].is_set():
            image = ImageShard(f"{number:064x}", TILES, (2, 2))
            [embedding] = await encoders.encode([CutImage(image, pixels)], "test")
            assert embedding.bytes == TILES * 144 * 128 * 2
            answered += 1
        return answered

    clients = [asyncio.create_task(client(number)) for number in range(CLIENTS)]
    await until(lambda: handoff.replica_count(handle) == 2, clients)
    for event in leave[1:]:
        event.set()
    await until(lambda: handoff.replica_count(handle) == 1, clients)
    leave[0].set()
    assert min(await asyncio.gather(*clients)) > 0
