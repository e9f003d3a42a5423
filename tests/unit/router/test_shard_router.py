"""TileRouter's counting, on an object made without Serve's machinery around it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from router.shard_router import TileRouter

REPLICAS = [SimpleNamespace(replica_id=name) for name in "abcd"]


@pytest.fixture
def router():
    made = object.__new__(TileRouter)
    made.initialize_state()
    return made


def call(name: str, tiles: int) -> SimpleNamespace:
    metadata = SimpleNamespace(internal_request_id=name)
    context = SimpleNamespace(should_backoff=False)
    args = [np.empty((tiles, 1)), []]
    return SimpleNamespace(metadata=metadata, args=args, future=asyncio.Future(), routing_context=context)


async def first_choice(router, request) -> str:
    return (await router.choose_replicas(REPLICAS, request))[0][0].replica_id


async def test_shards_that_are_sent_together_go_to_different_replicas(router):
    assert {await first_choice(router, call(str(i), 4)) for i in range(4)} == set("abcd")


async def test_tiles_count_and_not_requests(router):
    large = call("large", 17)
    replica = await first_choice(router, large)
    router.on_request_routed(large, replica, None)
    chosen = [await first_choice(router, call(str(i), 1)) for i in range(6)]
    assert replica not in chosen
    router.on_request_completed(replica, "large")
    assert await first_choice(router, call("next", 1)) == replica


async def test_calls_without_arguments_are_routed_too(router):
    request = call("x", 1)
    request.args = []
    assert len(await router.choose_replicas(REPLICAS, request)) == 4
    assert len(await router.choose_replicas(REPLICAS)) == 4
