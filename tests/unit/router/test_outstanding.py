"""The counting, on an object made without Serve's machinery around it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from router.outstanding import OutstandingRouter

REPLICAS = [SimpleNamespace(replica_id=name) for name in "abcd"]


class LeastLoaded(OutstandingRouter):
    def cost(self, request) -> int:
        return request.args[0]

    def rank(self, replicas, outstanding, request):
        return sorted(replicas, key=lambda replica: outstanding[replica.replica_id])


@pytest.fixture
def router():
    made = object.__new__(LeastLoaded)
    made.initialize_state()
    return made


def call(name: str, cost: int = 1) -> SimpleNamespace:
    metadata = SimpleNamespace(internal_request_id=name)
    context = SimpleNamespace(should_backoff=False)
    return SimpleNamespace(metadata=metadata, args=[cost], future=asyncio.Future(), routing_context=context)


async def choose(router, request) -> str:
    return (await router.choose_replicas(REPLICAS, request))[0][0].replica_id


async def test_where_it_went_counts_and_not_where_it_was_to_go(router):
    request = call("x", cost=17)
    replica = await choose(router, request)
    other = next(name for name in "abcd" if name != replica)
    router.on_request_routed(request, other, None)
    chosen = [await choose(router, call(str(i))) for i in range(3)]
    assert other not in chosen
    assert replica in chosen


async def test_a_call_that_was_given_up_counts_no_more(router):
    request = call("x", cost=17)
    replica = await choose(router, request)
    request.future.cancel()
    assert replica in [await choose(router, call(str(i))) for i in range(4)]
    assert "x" not in router._sent


async def test_serve_waits_before_it_asks_again(router):
    request = call("x")
    await choose(router, request)
    assert request.routing_context.should_backoff


async def test_choosing_once_more_does_not_count_twice(router):
    request = call("x", cost=3)
    assert await choose(router, request) == await choose(router, request)
