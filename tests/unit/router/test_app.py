import pytest

from router.app import bind, build_app
from router.config import AppConfig
from router.config_error import ConfigError


def deployments(app) -> dict:
    """Name -> deployment, of an application and everything bound into it."""
    found = {}
    waiting = [app]
    while waiting:
        bound = waiting.pop()._bound_deployment
        found[bound.name] = bound
        waiting += [arg for arg in bound.init_args if type(arg) is type(app)]
    return found


def config(**sections) -> AppConfig:
    return AppConfig.model_validate({"model": {"source": "m"}, "llm": {"gpus_per_node": 8}} | sections)


def test_three_deployments_are_sized_by_the_configuration():
    found = deployments(
        bind(
            config(
                encoder={"replicas": 4, "num_gpus": 1, "resources": {"tessera_encoder": 1}},
                llm={"replicas": 3, "gpus_per_node": 8, "engine_kwargs": {"tensor_parallel_size": 2}},
                router={"replicas": 2, "num_cpus": 2},
            )
        )
    )
    assert {name: d.num_replicas for name, d in found.items()} == {"Router": 2, "EncoderPool": 4, "LLMPool": 3}
    assert found["EncoderPool"].ray_actor_options["num_gpus"] == 1
    assert found["EncoderPool"].ray_actor_options["resources"] == {"tessera_encoder": 1}
    assert found["LLMPool"].ray_actor_options["num_gpus"] == 2
    assert found["Router"].ray_actor_options["num_cpus"] == 2


def test_pools_follow_their_load_where_they_are_told_to():
    autoscaling = {"min_replicas": 2, "max_replicas": 6, "target_load": 34}
    llm = {"autoscaling": autoscaling, "gpus_per_node": 8, "engine_kwargs": {"tensor_parallel_size": 2}}
    found = deployments(bind(config(encoder={"autoscaling": autoscaling, "num_gpus": 1}, llm=llm)))
    for name, gpus in (("EncoderPool", 1), ("LLMPool", 2)):
        scaled = found[name]._deployment_config.autoscaling_config
        assert (scaled.min_replicas, scaled.initial_replicas, scaled.max_replicas) == (2, 2, 6)
        assert scaled.policy.policy_kwargs == {"target": 34, "gpus": gpus}
    assert found["EncoderPool"]._deployment_config.max_ongoing_requests == 1024


def test_colocated_encoders_claim_their_gpus():
    engine = {"tensor_parallel_size": 8, "kv_cache_memory_bytes": 1 << 30}
    llm = {"gpus_per_node": 8, "engine_kwargs": engine}
    found = deployments(bind(config(placement="colocated", encoder={"memory_limit_gib": 10}, llm=llm)))
    assert found["EncoderPool"].num_replicas == 8
    assert found["EncoderPool"].ray_actor_options["num_gpus"] == 0
    assert found["EncoderPool"].init_kwargs == {"claims_gpu": True}


def test_dead_replicas_are_noticed_within_a_second():
    for name, deployment in deployments(bind(config())).items():
        if name != "Router":
            assert deployment._deployment_config.health_check_period_s == 1


def test_a_wrong_key_is_named():
    with pytest.raises(ConfigError, match=r"args\.encoder\.replica: unknown key; did you mean 'replicas'"):
        build_app({"model": {"source": "m"}, "encoder": {"replica": 1}})
