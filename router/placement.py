"""Which GPUs the encoders get: `placement: dedicated | colocated`.

- dedicated: encoders reserve GPUs of their own, and each pool is sized alone.
- colocated: one encoder beside every GPU of the decoders, for machines where no GPU can be spared. Decoders reserve
  whole GPUs and must fill their nodes; encoders reserve none, and each claims a GPU of its node when it starts
  (encoder_pool/gpu_claim.py), so that the order in which the pools start cannot matter.
"""

from __future__ import annotations

from typing import Any, Literal

from encoder_pool.settings import EncoderSettings
from llm_pool.placement import world_size
from llm_pool.settings import LLMSettings
from router.autoscaling import replica_options

Placement = Literal["dedicated", "colocated"]


def encoder_options(placement: Placement, encoder: EncoderSettings, llm: LLMSettings) -> dict[str, Any]:
    """Serve's options of the encoders: how many replicas, and what each reserves.

    llm: with `gpus_per_node` set. Raises ValueError where colocated encoders do not fit the decoders.
    """
    actor = {
        "num_cpus": encoder.num_cpus,
        "num_gpus": encoder.num_gpus,
        "resources": encoder.resources,
    }
    if placement == "dedicated":
        replicas = replica_options(encoder.replicas, encoder.autoscaling, encoder.num_gpus)
        return replicas | {"ray_actor_options": actor}
    check_colocated(encoder, llm)
    return {
        "num_replicas": llm.replicas * world_size(llm.engine_kwargs),
        "max_replicas_per_node": llm.gpus_per_node,
        "ray_actor_options": actor,
    }


def check_colocated(encoder: EncoderSettings, llm: LLMSettings) -> None:
    """Raises ValueError, its text beginning with the field, where these settings cannot be placed as colocated."""
    for field in ("replicas", "num_gpus"):
        if field in encoder.model_fields_set:
            raise ValueError(f"encoder.{field}: not to be set with placement colocated, which derives it")
    for pool, settings in (("encoder", encoder), ("llm", llm)):
        if settings.autoscaling is not None:
            raise ValueError(f"{pool}.autoscaling: not with placement colocated, where each pool binds the other")
    if encoder.memory_limit_gib is None:
        raise ValueError("encoder.memory_limit_gib: needed with placement colocated, where a decoder has the rest")
    if "kv_cache_memory_bytes" not in llm.engine_kwargs:
        raise ValueError(
            "llm.engine_kwargs.kv_cache_memory_bytes: needed with placement colocated, since vLLM would take its "
            "neighbour's memory for its own"
        )
    if llm.gpu_share != 1:
        raise ValueError("llm.gpu_share: must be 1 with placement colocated")
    if llm.gpus_per_node is not None:
        _check_nodes_are_filled(llm, llm.gpus_per_node)


def _check_nodes_are_filled(llm: LLMSettings, gpus_per_node: int) -> None:
    if gpus_per_node == 0:
        raise ValueError("placement: colocated needs GPUs")
    workers = world_size(llm.engine_kwargs)
    whole_engines_fill_a_node = gpus_per_node % workers == 0
    an_engine_fills_whole_nodes = workers % gpus_per_node == 0
    if not (whole_engines_fill_a_node or an_engine_fills_whole_nodes):
        raise ValueError(
            f"llm.engine_kwargs: engines of {workers} GPUs cannot fill nodes of {gpus_per_node}, as placement "
            "colocated needs"
        )
    if llm.replicas * workers % gpus_per_node:
        raise ValueError(
            f"llm.replicas: {llm.replicas} engines of {workers} GPUs leave GPUs of a node of {gpus_per_node} without "
            "a decoder, as placement colocated must not"
        )
