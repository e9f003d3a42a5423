"""The hand-off on a cluster of three raylets, one for each pool.

A probe on the Router's node runs the Router's own module against the pools of the running application; Ray is asked
where the objects are. Everything that the module takes from Serve's private API is exercised here.
"""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest
import ray
from ray import serve

from encoder_pool.deployment import EncoderPool
from encoder_pool.settings import EncoderSettings, ModelSettings
from encoder_pool.wire import HandOff, ImageShard
from tests.cluster import bytes_used
from tests.conftest import ROOMS

# 3 tiles of the demo model are 3 * 144 * width * 2 bytes: over the 100 KB below which Ray sends objects inline.
TILES = 3


@serve.deployment(ray_actor_options={"num_cpus": 0, "resources": {ROOMS["router"]: 0.01}})
class Probe:
    """Calls router.handoff as the Router does, in a process on the Router's node."""

    def __init__(self) -> None:
        from router import handoff

        self.handoff = handoff
        handles = [serve.get_deployment_handle(name, "tessera") for name in ("EncoderPool", "LLMPool")]
        self.encoder, self.llm = (handoff.by_reference(handle) for handle in handles)

    async def call(self, job, *args):
        return await job(self, *args)


def shards(count: int = 1) -> list[ImageShard]:
    return [ImageShard(f"{i:064x}", TILES, (1, 2)) for i in range(count)]


def tiles(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3, 336, 336), dtype=np.uint8)


def request(images: int = 1) -> dict:
    content = [{"type": "image_embeds", "image_embeds": i} for i in range(images)]
    return {"messages": [{"role": "user", "content": [*content, {"type": "text", "text": "?"}]}], "max_tokens": 2}


def node_roles() -> dict[str, str]:
    return {
        node["NodeID"]: room
        for node in ray.nodes()
        for room, resource in ROOMS.items()
        if node["Alive"] and resource in node["Resources"]
    }


@pytest.fixture(scope="module")
def probe(tessera):
    handle = serve.run(Probe.bind(), name="probe", route_prefix=None)

    def call(job, *args):
        return handle.call.remote(job, *args).result(timeout_s=400)

    yield call
    serve.delete("probe")


async def encode_and_decode(probe, images):
    """(object locations after the encode, the reply, locations after the decode)."""
    from ray.experimental import get_object_locations

    handoff = probe.handoff
    encoded = await handoff.encode(probe.encoder, tiles(TILES * images), shards(images), 60)

    def locations():
        return [found["node_ids"] for found in get_object_locations(encoded.refs).values()]

    before = locations()
    hand_off = HandOff(encoded.meta.dtype, encoded.meta.fingerprint, tuple(shards(images)))
    items = [item async for item in handoff.decode(probe.llm, "chat", request(images), hand_off, "probe", encoded.refs)]
    await asyncio.sleep(0.3)
    return before, items, locations(), encoded.meta


def test_embeddings_never_reach_the_routers_node(probe):
    before, [reply], after, meta = probe(encode_and_decode, 2)
    assert reply.status == 200, reply.body
    assert meta.n == 2
    roles = node_roles()
    assert [{roles[node] for node in nodes} for nodes in before] == [{"encoder"}, {"encoder"}]
    assert [{roles[node] for node in nodes} for nodes in after] == [{"encoder", "llm"}, {"encoder", "llm"}]


async def decode_what_is_promised(probe, timeout_s=60.0):
    """(whether the encode was over when the decoder was called, how it ended, what the decoder said)."""
    promised = asyncio.get_running_loop().create_future()
    encode = asyncio.create_task(
        probe.handoff.encode(probe.encoder, tiles(TILES, seed=7), shards(), timeout_s, promised.set_result)
    )
    refs = await promised
    over = encode.done()
    hand_off = HandOff("bfloat16", probe.fingerprint, tuple(shards()))
    items = [item async for item in probe.handoff.decode(probe.llm, "chat", request(), hand_off, "probe", refs)]
    [ended] = await asyncio.gather(encode, return_exceptions=True)
    return over, type(ended).__name__, items


def test_a_decoder_may_have_the_references_before_the_embeddings_exist(probe):
    probe(learn_fingerprint)
    over, ended, [reply] = probe(decode_what_is_promised)
    assert (over, ended) == (False, "Encoded")
    assert reply.status == 200, reply.body


def test_a_decoder_that_waits_for_what_never_comes_is_told(probe):
    probe(learn_fingerprint)
    # What has not begun after no time at all is dropped by the encoder.
    over, ended, [reply] = probe(decode_what_is_promised, -1.0)
    assert (over, ended) == (False, "RayTaskError(TimeoutError)")
    assert (reply.status, reply.lost) == (503, True)


async def learn_fingerprint(probe):
    encoded = await probe.handoff.encode(probe.encoder, tiles(TILES), shards(), 60)
    probe.fingerprint = encoded.meta.fingerprint


async def failing_encode(probe):
    try:
        await probe.handoff.encode(probe.encoder, tiles(1)[:, :, :7], shards(), 60)
    except ValueError as error:
        return str(error)


def test_an_encoders_error_is_known(probe):
    assert "tiles must have shape" in probe(failing_encode)


async def replica_counts(probe):
    return [probe.handoff.replica_count(handle) for handle in (probe.encoder, probe.llm)]


def test_replicas_are_known(probe):
    assert probe(replica_counts) == [1, 1]


@serve.deployment(ray_actor_options={"resources": {"a resource that no node has": 1}})
class Unplaced:
    """A pool whose replica can never start."""


async def unplaced_pool(probe):
    handle = probe.handoff.by_reference(serve.get_deployment_handle("Unplaced", "unplaced"))
    assert not probe.handoff.replica_count(handle)
    try:
        async with asyncio.timeout(10):
            await probe.handoff.encode(handle, tiles(TILES), shards(), 60)
    except Exception as error:
        return type(error).__name__


def test_a_pool_without_replicas_is_an_error_and_no_wait(probe):
    serve.api._run(Unplaced.bind(), name="unplaced", route_prefix=None, _blocking=False)
    try:
        assert probe(unplaced_pool) == "PoolGoneError"
    finally:
        serve.delete("unplaced", _blocking=False)


async def cancelled_encodes(probe, count):
    for i in range(count):
        task = asyncio.create_task(probe.handoff.encode(probe.encoder, tiles(TILES, i), shards(), 60))
        await asyncio.sleep(0.02 * (i % 5))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def abandoned_decodes(probe, count):
    for _ in range(count):
        encoded = await probe.handoff.encode(probe.encoder, tiles(TILES), shards(), 60)
        hand_off = HandOff(encoded.meta.dtype, encoded.meta.fingerprint, tuple(shards()))
        items = probe.handoff.decode(probe.llm, "chat", request() | {"stream": True}, hand_off, "probe", encoded.refs)
        await anext(items)
        await items.aclose()


async def finished(probe, count):
    together = 10
    for _ in range(count // together):
        await asyncio.gather(*(finished_once(probe) for _ in range(together)))


async def finished_once(probe):
    encoded = await probe.handoff.encode(probe.encoder, tiles(TILES), shards(), 60)
    hand_off = HandOff(encoded.meta.dtype, encoded.meta.fingerprint, tuple(shards()))
    async for _ in probe.handoff.decode(probe.llm, "chat", request(), hand_off, "probe", encoded.refs):
        pass


async def encode_elsewhere(probe):
    handle = probe.handoff.by_reference(serve.get_deployment_handle("EncoderPool", "leaving"))
    probe.encoded = await probe.handoff.encode(handle, tiles(TILES), shards(), 60)


async def decode_what_is_lost(probe):
    meta, refs = probe.encoded.meta, probe.encoded.refs
    hand_off = HandOff(meta.dtype, meta.fingerprint, tuple(shards()))
    async with asyncio.timeout(120):
        return [item async for item in probe.handoff.decode(probe.llm, "chat", request(), hand_off, "probe", refs)]


@pytest.mark.slow  # Ray gives a node half a minute
def test_an_embedding_whose_node_is_lost_is_an_error_and_no_wait(probe, three_raylets, tiny_checkpoint):
    node = three_raylets.cluster.add_node(
        num_cpus=1, object_store_memory=100 * 2**20, resources={"leaving": 1}, include_dashboard=False
    )
    pool = EncoderPool.options(ray_actor_options={"num_cpus": 0, "resources": {"leaving": 1}})
    serve.run(
        pool.bind(ModelSettings(source=str(tiny_checkpoint)), EncoderSettings()), name="leaving", route_prefix=None
    )
    try:
        probe(encode_elsewhere)
        three_raylets.cluster.remove_node(node, allow_graceful=False)
        [reply] = probe(decode_what_is_lost)
        assert (reply.status, reply.lost) == (503, True)
        probe(finished, 10)
    finally:
        serve.delete("leaving", _blocking=False)


async def garbage(probe, what):
    """gc.disable, gc.enable or gc.collect, in the probe's process."""
    import gc

    getattr(gc, what)()


@pytest.mark.parametrize(
    ("job", "count", "collected"),
    [
        # Cycles must not be needed for release, so the garbage collector rests while objects are counted.
        (finished, 100, False),
        (abandoned_decodes, 10, False),
        # A call that is cancelled at the wrong moment leaves a cycle among Serve's own objects.
        (cancelled_encodes, 20, True),
    ],
)
def test_no_object_stays_pinned(probe, job, count, collected):
    probe(garbage, "disable")
    start = bytes_used()
    probe(job, count)
    if collected:
        probe(garbage, "collect")
    for _ in range(40):
        if bytes_used() <= start:
            break
        time.sleep(0.25)
    probe(garbage, "enable")
    assert bytes_used() <= start
