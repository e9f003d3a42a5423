"""A pool of real encoders that follows its load, up and down; two stand-in pools that share GPUs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import numpy as np
import pytest
from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema

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
GPUS = 4
SHARED = "sharing"


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


@pytest.fixture
def loads(three_raylets, tmp_path):
    """Pool -> the file that tells its load; the application has `GPUS` logical GPUs."""
    files = {pool: tmp_path / pool for pool in ("EncoderPool", "LLMPool")}
    for file in files.values():
        file.write_text("0")
    node = three_raylets.cluster.add_node(num_cpus=1, num_gpus=GPUS)
    application = {
        "name": SHARED,
        "import_path": "tests.integration.router.stand_in_pools:build",
        "route_prefix": None,
        "args": {pool: str(file) for pool, file in files.items()},
        "autoscaling_policy": {
            "policy_function": "router.autoscaling:SharedGpus",
            "policy_kwargs": {"gpus": GPUS},
        },
    }
    # Serve takes an application's policy from a file alone, and deletes what is no longer in its file.
    client = _get_global_client()
    details = client.get_serve_details()["applications"].values()
    others = [each["deployed_app_config"] for each in details if each["source"] == "declarative"]
    client.deploy_apps(ServeDeploySchema.model_validate({"applications": [*others, application]}))
    yield files
    serve.delete(SHARED)
    three_raylets.cluster.remove_node(node)


async def running(encoders: int, decoders: int) -> None:
    """Returns once so many replicas of the two pools run, and no other one is there."""
    deadline = time.monotonic() + 90
    while True:
        deployments = serve.status().applications[SHARED].deployments
        pools = [deployments[pool].replica_states for pool in ("EncoderPool", "LLMPool") if pool in deployments]
        if pools == [{"RUNNING": encoders}, {"RUNNING": decoders}]:
            return
        assert time.monotonic() < deadline, pools
        await asyncio.sleep(0.5)


@pytest.mark.slow  # replicas come and go
async def test_encoders_give_gpus_to_decoders_and_take_them_back(loads):
    await running(1, 1)
    loads["EncoderPool"].write_text("1000")
    await running(3, 1)
    loads["LLMPool"].write_text("1000")
    await running(1, 3)
    loads["LLMPool"].write_text("0")
    await running(3, 1)
