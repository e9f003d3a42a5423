"""The Serve configuration of every values file: right for Ray and the application, and small enough for its pods."""

from __future__ import annotations

import copy

import pytest
import yaml

from encoder_pool.settings import EncoderSettings
from llm_pool.placement import place
from llm_pool.settings import LLMSettings
from router.config import AppConfig, check_file
from tests.unit.k8s.chart import (
    K8S,
    POOLS,
    VALUES_FILES,
    changed,
    container_of,
    groups_of,
    merged,
    rayservice,
    serve_config,
    values_of,
)

ROOT_CONFIGS = {"values-scout-bf16-8.yaml": "scout-bf16-8gpu.yaml", "values-scout-fp8-8.yaml": "scout-fp8-8gpu.yaml"}


def checked(values, tmp_path) -> AppConfig:
    """By the check that users run: Ray's schema, no unknown key, AppConfig, vLLM's argument names."""
    path = tmp_path / "serve.yaml"
    path.write_text(rayservice(values)["spec"]["serveConfigV2"])
    return check_file(path)


def replicas_of(application) -> dict[str, int]:
    """Section of the arguments -> replicas of its deployment."""
    number = {entry.pop("name"): entry.pop("num_replicas") for entry in copy.deepcopy(application["deployments"])}
    return {"router": number["Router"], "encoder": number["EncoderPool"], "llm": number["LLMPool"]}


@pytest.mark.parametrize("file", VALUES_FILES)
def test_it_passes_the_projects_own_check(file, tmp_path) -> None:
    checked(values_of(file), tmp_path)


@pytest.mark.parametrize("file", VALUES_FILES)
def test_its_arguments_are_the_values_and_what_the_chart_adds(file) -> None:
    values = merged(values_of(file))
    (application,) = serve_config(values_of(file))["applications"]
    args = application["args"]
    for group, section in POOLS.items():
        assert args[section].pop("resources") == {f"tessera_{group}": 1}
        # Beside the arguments, whose change would restart every pool.
        if values["tessera"]["placement"] == "dedicated" or section != "encoder":
            args[section]["replicas"] = replicas_of(application)[section]
    assert args["llm"].pop("gpus_per_node") == values["groups"]["decoder"]["gpus"]
    assert args == values["tessera"]


def test_a_pool_that_follows_its_load_has_no_fixed_number(tmp_path) -> None:
    values = changed(
        values_of("values-scout-fp8-8.yaml"),
        tessera__encoder__autoscaling={"min_replicas": 1, "max_replicas": 2, "target_load": 34},
        tessera__llm__autoscaling={"max_replicas": 3, "target_load": 16},
        groups__encoder__pods=1,
        groups__encoder__maxPods=2,
        groups__decoder__pods=1,
        groups__decoder__maxPods=3,
    )
    (application,) = serve_config(values)["applications"]
    assert [entry["name"] for entry in application["deployments"]] == ["Router"]
    config = checked(values, tmp_path)
    assert config.encoder.autoscaling.max_replicas == 2
    assert config.llm.autoscaling.min_replicas == 1


def test_every_pod_can_be_reached_from_outside() -> None:
    assert serve_config({})["http_options"] == {"host": "0.0.0.0", "port": 8000}
    assert serve_config({})["proxy_location"] == "EveryNode"


def test_a_large_number_stays_a_whole_number() -> None:
    values = {"tessera": {"llm": {"engine_kwargs": {"kv_cache_memory_bytes": 68719476736}}}}
    args = serve_config(values)["applications"][0]["args"]
    assert args["llm"]["engine_kwargs"]["kv_cache_memory_bytes"] == 68719476736
    assert isinstance(args["llm"]["engine_kwargs"]["kv_cache_memory_bytes"], int)


def test_text_that_looks_like_yaml_stays_text(tmp_path) -> None:
    names = ["yes", "1.5", "a: b", "# no comment", "{{ .Values.image }}", "line\nbreak"]
    config = checked({"tessera": {"model": {"served_names": names}}}, tmp_path)
    assert list(config.model.served_names) == names


def reservations(values, tmp_path) -> dict[str, tuple[int, dict[str, float]]]:
    """Group -> replicas, and what Ray reserves for each by the application's own rules."""
    config, replicas = checked(values, tmp_path), replicas_of(serve_config(values)["applications"][0])

    def of(settings: EncoderSettings | LLMSettings, gpus: float) -> dict[str, float]:
        return {"CPU": settings.num_cpus, "GPU": gpus} | settings.resources

    decoder = place(config.llm).serve_options["ray_actor_options"]
    router = {"CPU": config.router.num_cpus, "GPU": 0} | config.router.resources
    return {
        "router": (replicas["router"], router),
        "encoder": (replicas["encoder"], of(config.encoder, config.encoder.num_gpus)),
        "decoder": (replicas["llm"], of(config.llm, decoder["num_gpus"])),
    }


def home_of(name: str, values) -> str:
    """The group of pods in which the replicas of pool `name` live."""
    colocated = merged(values)["tessera"]["placement"] == "colocated"
    return "decoder" if colocated and name == "encoder" else name


def node_resources(group) -> dict[str, float]:
    """What a pod of the group offers Ray."""
    limits = container_of(group)["resources"]["limits"]
    custom = {name: float(amount) for name, amount in group["resources"].items()}
    return {"CPU": float(limits["cpu"]), "GPU": float(limits.get("nvidia.com/gpu", 0))} | custom


def pods_filled(replicas: int, reserved: dict[str, float], offered: dict[str, float]) -> int | None:
    """Pods of the group that hold the replicas, each filled before the next; None where one replica does not fit."""
    per_pod = min(int(offered.get(name, 0) / amount + 1e-9) for name, amount in reserved.items() if amount)
    return -(-replicas // per_pod) if per_pod else None


@pytest.mark.parametrize("file", VALUES_FILES)
def test_replicas_fit_the_groups_at_their_most_and_fill_them_at_their_least(file, tmp_path) -> None:
    values = values_of(file)
    groups = groups_of(rayservice(values))
    for name, (replicas, reserved) in reservations(values, tmp_path).items():
        group = groups[home_of(name, values)]
        needed = pods_filled(replicas, reserved, node_resources(group))
        assert needed is not None, f"{name}: one replica does not fit a pod"
        assert group["minReplicas"] <= needed <= group["maxReplicas"], name


@pytest.mark.parametrize("file", VALUES_FILES)
def test_a_pool_fits_its_own_group_alone(file, tmp_path) -> None:
    values = values_of(file)
    groups = groups_of(rayservice(values))
    for name, (_, reserved) in reservations(values, tmp_path).items():
        for other in groups.keys() - {home_of(name, values), "head"}:
            assert f"tessera_{name}" not in node_resources(groups[other])
            assert reserved[f"tessera_{name}"] > 0


@pytest.mark.parametrize("file", VALUES_FILES)
def test_no_gpu_is_left_idle_or_asked_for_twice(file, tmp_path) -> None:
    values = values_of(file)
    groups = groups_of(rayservice(values))
    for name, (replicas, reserved) in reservations(values, tmp_path).items():
        offered = node_resources(groups[home_of(name, values)])
        per_pod = -(-replicas // pods_filled(replicas, reserved, offered))
        # A colocated encoder reserves none and claims one.
        of_each = 1 if home_of(name, values) != name else reserved["GPU"]
        assert per_pod * of_each == offered["GPU"], name


def test_several_replicas_share_a_pod(tmp_path) -> None:
    values = changed(
        {},
        tessera__encoder__replicas=4,
        tessera__encoder__num_gpus=0.5,
        groups__encoder__replicasPerPod=2,
        groups__encoder__maxPods=2,
    )
    groups = groups_of(rayservice(values))
    replicas, reserved = reservations(values, tmp_path)["encoder"]
    assert pods_filled(replicas, reserved, node_resources(groups["encoder"])) == 2


def test_engines_of_one_gpu_share_it(tmp_path) -> None:
    values = changed(
        {},
        tessera__llm__replicas=2,
        tessera__llm__gpu_share=0.5,
        tessera__llm__engine_kwargs__tensor_parallel_size=1,
        groups__decoder__replicasPerPod=2,
        groups__decoder__gpus=1,
    )
    replicas, reserved = reservations(values, tmp_path)["decoder"]
    assert pods_filled(replicas, reserved, node_resources(groups_of(rayservice(values))["decoder"])) == 1


@pytest.mark.parametrize(("file", "config"), ROOT_CONFIGS.items())
def test_model_and_decoders_are_those_of_the_configuration_without_kubernetes(file, config) -> None:
    plain = yaml.safe_load((K8S.parent / "configs" / config).read_text())["applications"][0]["args"]
    application = serve_config(values_of(file))["applications"][0]
    args = application["args"]
    assert args["model"] == plain["model"]
    assert replicas_of(application)["llm"] == plain["llm"]["replicas"]
    assert args["llm"]["engine_kwargs"] == plain["llm"]["engine_kwargs"]
    assert args["llm"]["frontend_kwargs"] == plain["llm"]["frontend_kwargs"]
