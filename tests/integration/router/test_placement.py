"""Colocated encoders on Ray's logical GPUs: one beside every GPU of the decoders, whatever starts or dies first.

The replicas are stand-ins that reserve and claim as the real ones do; those would need real GPUs.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict

import pytest
import ray
from ray import serve

from encoder_pool.gpu_claim import claim_gpu_of_this_node
from encoder_pool.settings import EncoderSettings
from llm_pool.placement import place
from llm_pool.settings import LLMSettings
from router.placement import encoder_options

NODES, GPUS = 2, 4
ENCODER = EncoderSettings(memory_limit_gib=10, resources={"gpu_node_encoder": 1}, num_cpus=0)
LLM = LLMSettings(
    replicas=4,
    gpus_per_node=GPUS,
    resources={"gpu_node_decoder": 1},
    num_cpus=0,
    engine_kwargs={"tensor_parallel_size": 2, "kv_cache_memory_bytes": 1 << 30},
)


class Claims:
    """An encoder as far as its GPU goes."""

    def __init__(self) -> None:
        self._gpu = claim_gpu_of_this_node()

    def where(self) -> tuple[str, list[int]]:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == str(self._gpu)
        return ray.get_runtime_context().get_node_id(), [self._gpu]


class Reserves:
    """A decoder as far as its GPUs go."""

    def where(self) -> tuple[str, list[int]]:
        return ray.get_runtime_context().get_node_id(), [int(gpu) for gpu in ray.get_gpu_ids()]


@pytest.fixture(scope="module")
def gpu_nodes(three_raylets):
    """Two nodes of four logical GPUs, as a cluster's only ones."""
    resources = {"gpu_node_encoder": GPUS, "gpu_node_decoder": GPUS}
    nodes = [three_raylets.cluster.add_node(num_cpus=1, num_gpus=GPUS, resources=resources) for _ in range(NODES)]
    yield
    for name in ("encoders", "decoders"):
        serve.delete(name)
    for node in nodes:
        three_raylets.cluster.remove_node(node)


def start_encoders(replicas: int | None = None) -> None:
    options = encoder_options("colocated", ENCODER, LLM)
    if replicas is not None:
        options["num_replicas"] = replicas
    pool = serve.deployment(Claims).options(name="EncoderPool", health_check_period_s=1, **options)
    serve.run(pool.bind(), name="encoders", route_prefix=None)


def start_decoders() -> None:
    pool = serve.deployment(Reserves).options(
        name="LLMPool", num_replicas=LLM.replicas, health_check_period_s=1, **place(LLM).serve_options
    )
    serve.run(pool.bind(), name="decoders", route_prefix=None)


def gpus_of(name: str) -> dict[str, list[int]]:
    """Node id -> the GPUs that replicas of the application hold there, sorted."""
    held = defaultdict(list)
    for node, gpus in serve.get_app_handle(name).broadcast("where").results():
        held[node] += gpus
    return {node: sorted(gpus) for node, gpus in held.items()}


def assert_one_encoder_beside_each_gpu() -> None:
    """Soon: the controller replaces what was killed."""
    deadline = time.monotonic() + 90
    while True:
        try:
            encoders, decoders = gpus_of("encoders"), gpus_of("decoders")
        except Exception:  # a replica that was killed is still asked
            encoders = decoders = {}
        if len(decoders) == NODES and encoders == decoders:
            assert all(gpus == list(range(GPUS)) for gpus in encoders.values())
            return
        assert time.monotonic() < deadline, (encoders, decoders)
        time.sleep(0.5)


def kill_all(name: str) -> None:
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["name"].startswith(f"SERVE_REPLICA::{name}#"):
            ray.kill(ray.get_actor(actor["name"], namespace=actor["namespace"]))


@pytest.mark.slow  # 24 replicas come and go
def test_one_encoder_beside_each_gpu_through_starts_deaths_and_scaling(gpu_nodes):
    start_encoders()
    start_decoders()
    assert_one_encoder_beside_each_gpu()
    for name in ("encoders", "decoders"):
        kill_all(name)
        assert_one_encoder_beside_each_gpu()
    start_encoders(replicas=3)
    start_encoders()
    assert_one_encoder_beside_each_gpu()
    serve.delete("encoders")
    serve.delete("decoders")
    start_decoders()
    start_encoders()
    assert_one_encoder_beside_each_gpu()
