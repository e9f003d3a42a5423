"""Minutes of load leave nothing behind: no error, no growing process, no object."""

from __future__ import annotations

import asyncio
import os

import pytest
import ray

from benchmarks.load import measure
from benchmarks.processes import STORE, Watch, exported
from benchmarks.traffic import Traffic

CLIENTS = 64
WARM_UP_S, DURATION_S = 60, 300
GROWTH_LIMIT = 2**20  # bytes a minute
KEPT = "ray_tessera_router_store_bytes"


@pytest.mark.slow  # six minutes
@pytest.mark.timeout(1200)
async def test_load_leaves_nothing_behind(tessera):
    nodes = [node for node in ray.nodes() if node["Alive"]]
    exports = [f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics" for node in nodes]
    before = await in_flight(exports)
    traffic = Traffic(tessera.url, tessera.model, {"text": 0.5, "image": 0.5})
    await traffic.run(CLIENTS, WARM_UP_S)
    outcomes, samples = await measure(traffic, CLIENTS, DURATION_S, Watch(os.getpid(), exports))
    assert [outcome.error for outcome in outcomes if outcome.error is not None] == []
    assert {outcome.kind for outcome in outcomes} == {"text", "image"}
    growth = samples.growth()
    assert any("LLMPool" in name for name in growth)
    assert {name: per_minute for name, per_minute in growth.items() if per_minute > GROWTH_LIMIT} == {}
    async with asyncio.timeout(60):
        while await in_flight(exports) > before + 2**20:
            await asyncio.sleep(1)


async def in_flight(exports: list[str]) -> float:
    """Bytes in the object stores beside the embeddings that are kept: on the encoder's node, and a copy that Ray drops
    with them, or when it needs the room, on the decoder's.
    """
    return await exported(exports, STORE) - 2 * await exported(exports, KEPT)
