"""What each placement reserves, and what it refuses."""

from __future__ import annotations

import pytest

from encoder_pool.settings import Autoscaling, EncoderSettings
from llm_pool.settings import LLMSettings
from router.config import ConfigError, parse_args
from router.placement import encoder_options


def llm(replicas=1, gpus_per_node=8, kv=1 << 30, **engine) -> LLMSettings:
    kwargs = engine | ({"kv_cache_memory_bytes": kv} if kv else {})
    return LLMSettings(replicas=replicas, gpus_per_node=gpus_per_node, engine_kwargs=kwargs)


BESIDE = EncoderSettings(memory_limit_gib=10, resources={"tessera_encoder": 1})


def test_dedicated_encoders_reserve_what_their_settings_say():
    options = encoder_options("dedicated", EncoderSettings(replicas=3, num_gpus=1), llm())
    assert options["num_replicas"] == 3
    assert options["ray_actor_options"]["num_gpus"] == 1
    assert "max_replicas_per_node" not in options


@pytest.mark.parametrize(
    ("decoders", "replicas"),
    [
        (llm(tensor_parallel_size=8), 8),
        (llm(replicas=4, tensor_parallel_size=2), 8),
        (llm(replicas=6, tensor_parallel_size=4), 24),
        (llm(tensor_parallel_size=8, pipeline_parallel_size=2), 16),
    ],
)
def test_a_colocated_encoder_stands_beside_every_gpu(decoders, replicas):
    options = encoder_options("colocated", BESIDE, decoders)
    assert options["num_replicas"] == replicas
    assert options["max_replicas_per_node"] == 8
    assert options["ray_actor_options"]["num_gpus"] == 0
    assert options["ray_actor_options"]["resources"] == {"tessera_encoder": 1}


@pytest.mark.parametrize(
    ("encoder", "decoders", "message"),
    [
        (EncoderSettings(replicas=8, memory_limit_gib=10), llm(tensor_parallel_size=8), r"^encoder\.replicas: "),
        (EncoderSettings(num_gpus=1, memory_limit_gib=10), llm(tensor_parallel_size=8), r"^encoder\.num_gpus: "),
        (
            EncoderSettings(memory_limit_gib=10, autoscaling=Autoscaling(max_replicas=2, target_load=34)),
            llm(tensor_parallel_size=8),
            r"^encoder\.autoscaling: ",
        ),
        (EncoderSettings(), llm(tensor_parallel_size=8), r"^encoder\.memory_limit_gib: "),
        (BESIDE, llm(kv=0, tensor_parallel_size=8), r"^llm\.engine_kwargs\.kv_cache_memory_bytes: "),
        (BESIDE, llm(gpus_per_node=0), r"^placement: colocated needs GPUs"),
        (BESIDE, llm(replicas=3, tensor_parallel_size=2), r"^llm\.replicas: 3 engines of 2 GPUs leave GPUs"),
        (BESIDE, llm(tensor_parallel_size=3), r"^llm\.engine_kwargs: engines of 3 GPUs cannot fill nodes of 8"),
        (BESIDE, llm(replicas=3, tensor_parallel_size=12), r"^llm\.engine_kwargs: engines of 12 GPUs cannot fill"),
    ],
)
def test_what_cannot_be_colocated_is_refused_and_named(encoder, decoders, message):
    with pytest.raises(ValueError, match=message):
        encoder_options("colocated", encoder, decoders)


def test_a_file_is_refused_before_anything_starts():
    with pytest.raises(ConfigError, match=r"^args\.encoder\.memory_limit_gib: needed with placement colocated"):
        parse_args({"placement": "colocated", "model": {"source": "m"}})
