"""Where an engine's workers run: what Ray reserves for a replica, and which executor of vLLM starts the workers.

Derived from vLLM's own parallelism arguments. vLLM would choose an executor by itself, but by what it sees from within
the replica; the reservation is made before that, so the two are derived together and the executor is always named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ray

from llm_pool.settings import LLMSettings

# glibc gives up to eight heaps to every core, one to each thread that comes, and each grows to the most that its thread
# ever needed: under load a CPU decoder with 16 of them grows by megabytes a minute. Beside a GPU, with many cores,
# threads would wait for each other. Read once, when a process starts.
CPU_ENV = {"env_vars": {"MALLOC_ARENA_MAX": "2"}}
# Their product is the number of workers of one engine (vLLM's ParallelConfig.world_size).
PARALLEL_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "prefill_context_parallel_size")


@dataclass(frozen=True, slots=True)
class Placement:
    """executor: vLLM's `distributed_executor_backend`.

    serve_options: options of the Serve deployment: `ray_actor_options`, and for an engine that spans nodes
    `placement_group_bundles` and `placement_group_strategy`.
    """

    executor: Literal["mp", "ray", "uni"]
    serve_options: dict[str, Any]


def resolve(settings: LLMSettings) -> LLMSettings:
    """The settings with `gpus_per_node` set: where it is None, from the nodes of the running cluster."""
    if settings.gpus_per_node is not None:
        return settings
    return settings.model_copy(update={"gpus_per_node": most_gpus(ray.nodes())})


def most_gpus(nodes: Sequence[Mapping[str, Any]]) -> int:
    """GPUs of the best equipped living node of `ray.nodes()`; 0 without any."""
    return max((int(node["Resources"].get("GPU", 0)) for node in nodes if node["Alive"]), default=0)


def world_size(engine_kwargs: Mapping[str, Any]) -> int:
    """Workers of one engine; on GPUs each holds one."""
    size = 1
    for name in PARALLEL_SIZES:
        size *= int(engine_kwargs.get(name, 1))
    return size


def gpus_of(settings: LLMSettings) -> float:
    """GPUs that one replica reserves, on all its nodes together; `settings.gpus_per_node` must be set."""
    if settings.gpus_per_node == 0:
        return 0
    workers = world_size(settings.engine_kwargs)
    return settings.gpu_share if workers == 1 else workers


def place(settings: LLMSettings) -> Placement:
    """The placement of every replica of the pool; `settings.gpus_per_node` must be set, 0 is the CPU.

    One worker runs inside the engine's process and the replica holds its GPU. Several on one node are processes of
    the replica, which holds all their GPUs. Over nodes they are Ray actors in the replica's placement group, one GPU
    a bundle; the replica holds none and lives in the first bundle, which therefore carries its CPUs.
    """
    if settings.gpus_per_node is None:
        raise ValueError("gpus_per_node is not set; see resolve()")
    workers = world_size(settings.engine_kwargs)
    actor: dict[str, Any] = {
        "num_cpus": settings.num_cpus,
        "num_gpus": 0,
        "resources": settings.resources,
    }
    if settings.gpus_per_node == 0:
        # vLLM's CPU backend binds the threads of worker processes, and would replace `uni` by `mp` itself.
        return Placement("mp", {"ray_actor_options": actor | {"runtime_env": CPU_ENV}})
    if workers == 1:
        return Placement("uni", {"ray_actor_options": actor | {"num_gpus": settings.gpu_share}})
    if settings.gpu_share != 1:
        raise ValueError("gpu_share: only an engine on one GPU can share it")
    if workers <= settings.gpus_per_node:
        return Placement("mp", {"ray_actor_options": actor | {"num_gpus": workers}})
    first = {"CPU": settings.num_cpus, "GPU": 1.0} | settings.resources
    return Placement(
        "ray",
        {
            "ray_actor_options": actor,
            "placement_group_bundles": [first] + [{"GPU": 1.0}] * (workers - 1),
            "placement_group_strategy": "PACK",
        },
    )
