"""The RayService of every values file: KubeRay's fields, KubeRay's own rules, and what an operator relies on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest
import yaml

from k8s.generate.crd_fields import FIELDS, manifest_schema
from tests.unit.k8s.chart import (
    CHART,
    VALUES_FILES,
    changed,
    container_of,
    env_of,
    groups_of,
    merged,
    rayservice,
    render,
    values_of,
)

EVERY_OPTION = {
    "image__pullSecrets": ["registry"],
    "upgrade__strategy": "NewClusterWithIncrementalUpgrade",
    "upgrade__incremental__gatewayClassName": "istio",
    "startup__giveUpSeconds": 7200,
    "huggingFace__tokenSecret__name": "hub",
    "modelCache__enabled": True,
    "rayTokenAuth__secretName": "ray-token",
    "serviceAccountName": "tessera",
    "groups__encoder__nodeSelector": {"gpu": "l40s"},
    "groups__encoder__tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "groups__decoder__affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h200"]}]}]
            }
        }
    },
    "groups__router__podAnnotations": {"team": "vision"},
    "groups__router__env": {"RAY_SERVE_LOG_TO_STDERR": "1"},
}
REDIS = {
    "gcsFaultTolerance__enabled": True,
    "gcsFaultTolerance__redisAddress": "redis.data:6379",
    "gcsFaultTolerance__redisPasswordSecret__name": "redis",
}
ROCKSDB = {"gcsFaultTolerance__enabled": True, "gcsFaultTolerance__backend": "rocksdb"}
RELEASES = {
    **{file: values_of(file) for file in VALUES_FILES},
    "every option, Redis": changed({}, **EVERY_OPTION, **REDIS),
    "every option, RocksDB": changed({}, **EVERY_OPTION, **ROCKSDB),
}


@pytest.fixture(params=RELEASES.values(), ids=list(RELEASES))
def manifest(request):
    return rayservice(request.param)


def test_it_has_only_fields_that_kuberay_knows(manifest) -> None:
    jsonschema.Draft202012Validator(json.loads(FIELDS.read_text())).validate(manifest)


@pytest.fixture(scope="session")
def whole_crd() -> dict:
    path = os.environ.get("TESSERA_KUBERAY_CRD")
    if not path:
        pytest.skip(
            "TESSERA_KUBERAY_CRD does not name KubeRay's ray.io_rayservices.yaml, which is not part of this project"
        )
    return manifest_schema(yaml.load(Path(path).read_text(), Loader=yaml.CSafeLoader), values=True)


def test_it_is_valid_by_the_whole_crd(manifest, whole_crd) -> None:
    jsonschema.Draft202012Validator(whole_crd).validate(manifest)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda m: m["spec"].update(serveConfig="x"),
        lambda m: m["spec"]["rayClusterConfig"]["workerGroupSpecs"][0].update(numOfHost=1),
        lambda m: container_of(groups_of(m)["encoder"]).update(shm="8Gi"),
        lambda m: groups_of(m)["decoder"].update(maxReplicas="1"),
    ],
)
def test_a_misspelt_or_mistyped_field_would_be_noticed(spoil) -> None:
    manifest = rayservice({})
    spoil(manifest)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json.loads(FIELDS.read_text())).validate(manifest)


def test_it_keeps_the_rules_that_the_operator_checks_itself(manifest) -> None:
    """Those of KubeRay 1.7 that its CRD does not state and that concern what the chart writes."""
    spec, cluster = manifest["spec"], manifest["spec"]["rayClusterConfig"]
    for name, group in groups_of(manifest).items():
        reserved = {"num-cpus", "num-gpus", "memory", "resources"} & group["rayStartParams"].keys()
        assert not (reserved and group.get("resources")), f"{name}: resources and rayStartParams exclude each other"
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    if cluster["enableInTreeAutoscaling"]:
        for group in groups_of(manifest).values():
            assert group["template"]["spec"].get("restartPolicy", "Never") == "Never"
            names = {entry["name"] for entry in container_of(group)["env"]}
            assert "RAY_enable_autoscaler_v2" not in names
    if spec["upgradeStrategy"]["type"] == "NewClusterWithIncrementalUpgrade":
        assert cluster["enableInTreeAutoscaling"]
    if cluster["authOptions"]["mode"] == "token":
        assert tuple(map(int, cluster["rayVersion"].split("."))) >= (2, 52, 0)
    assert manifest["spec"]["upgradeStrategy"]["type"] in ("NewCluster", "NewClusterWithIncrementalUpgrade", "None")


def test_the_head_does_no_work_and_gets_no_traffic(manifest) -> None:
    assert groups_of(manifest)["head"]["rayStartParams"]["num-cpus"] == "0"
    assert manifest["spec"]["excludeHeadPodFromServeSvc"] is True


def test_ray_is_the_release_that_the_project_asks_for(manifest) -> None:
    pyproject = (CHART.parents[1] / "pyproject.toml").read_text()
    version = manifest["spec"]["rayClusterConfig"]["rayVersion"]
    assert f'"ray[serve]=={version.rsplit(".", 1)[0]}.*"' in pyproject


@pytest.mark.parametrize("file", VALUES_FILES)
def test_shared_memory_holds_the_object_store_and_the_margin(file) -> None:
    values = merged(values_of(file))
    for name, group in groups_of(rayservice(values_of(file))).items():
        store = int(values["groups"][name]["objectStoreGiB"])
        assert group["rayStartParams"]["object-store-memory"] == str(store * 2**30)
        (volume,) = (v for v in group["template"]["spec"]["volumes"] if v["name"] == "shared-memory")
        size = store + int(values["sharedMemoryMarginGiB"])
        assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": f"{size}Gi"}
        (mount,) = (m for m in container_of(group)["volumeMounts"] if m["name"] == "shared-memory")
        assert mount["mountPath"] == "/dev/shm"
        # A memory-backed volume counts as the container's memory.
        assert int(container_of(group)["resources"]["limits"]["memory"].removesuffix("Gi")) > size


def test_requests_are_limits(manifest) -> None:
    """Ray plans with the limits; a smaller request would let Kubernetes put more on a node than it holds."""
    for group in groups_of(manifest).values():
        resources = container_of(group)["resources"]
        assert resources["requests"] == resources["limits"]


def test_nothing_runs_as_root_or_may_become_it(manifest) -> None:
    for group in groups_of(manifest).values():
        pod, container = group["template"]["spec"], container_of(group)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 1000
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_ray_asks_for_a_token_unless_told_otherwise() -> None:
    assert rayservice({})["spec"]["rayClusterConfig"]["authOptions"] == {"mode": "token"}
    opened = rayservice(changed({}, rayTokenAuth__enabled=False))
    assert opened["spec"]["rayClusterConfig"]["authOptions"] == {"mode": "disabled"}


def test_a_lost_node_is_noticed_within_the_set_time_on_every_pod() -> None:
    values = changed(
        {},
        lostNode__healthCheckPeriodMs=700,
        lostNode__healthCheckTimeoutMs=1100,
        lostNode__healthCheckFailureThreshold=4,
        lostNode__objectPullTimeoutMs=1300,
    )
    for group in groups_of(rayservice(values)).values():
        env = env_of(group)
        assert env["RAY_health_check_period_ms"] == "700"
        assert env["RAY_health_check_timeout_ms"] == "1100"
        assert env["RAY_health_check_failure_threshold"] == "4"
        assert env["RAY_object_manager_pull_timeout_ms"] == "1300"


def test_by_default_a_lost_node_is_waited_for_three_seconds_at_most() -> None:
    env = env_of(groups_of(rayservice({}))["decoder"])
    silence = int(env["RAY_health_check_period_ms"]) * int(env["RAY_health_check_failure_threshold"])
    assert silence + int(env["RAY_health_check_timeout_ms"]) <= 3000
    assert int(env["RAY_object_manager_pull_timeout_ms"]) <= 3000


def test_environment_of_all_pods_and_of_one_group() -> None:
    values = {
        "env": {"RAY_SERVE_ENABLE_HA_PROXY": "1", "LEVEL": "all"},
        "groups": {"decoder": {"env": {"LEVEL": "decoder", "NCCL_DEBUG": "WARN"}}},
    }
    groups = groups_of(rayservice(values))
    assert all(env_of(group)["RAY_SERVE_ENABLE_HA_PROXY"] == "1" for group in groups.values())
    assert {name: env_of(group)["LEVEL"] for name, group in groups.items()} == {
        "head": "all",
        "router": "all",
        "encoder": "all",
        "decoder": "decoder",
    }
    assert [name for name, group in groups.items() if "NCCL_DEBUG" in env_of(group)] == ["decoder"]


def test_the_hub_token_comes_from_its_secret() -> None:
    values = changed({}, huggingFace__tokenSecret__name="hub", huggingFace__tokenSecret__key="hf")
    for group in groups_of(rayservice(values)).values():
        (entry,) = (entry for entry in container_of(group)["env"] if entry["name"] == "HF_TOKEN")
        assert entry["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "hf"}}


class TestSlowStarts:
    """An image of 8 GB and weights of 200 GB must have time to come."""

    @pytest.mark.parametrize("file", VALUES_FILES)
    def test_nothing_is_given_up_within_half_an_hour(self, file) -> None:
        values = merged(values_of(file))
        assert values["startup"]["podSeconds"] >= 1800
        assert values["autoscaler"]["idleSeconds"] >= 1800
        manifest = rayservice(values_of(file))
        assert "annotations" not in manifest["metadata"], "KubeRay gives up for good where a time-out is set"
        for group in groups_of(manifest).values():
            # KubeRay adds its own, which ask for Ray's health and not for a loaded model.
            assert not {"livenessProbe", "readinessProbe", "startupProbe"} & container_of(group).keys()

    def test_the_times_can_be_set(self) -> None:
        values = changed(
            {},
            groups__encoder__maxPods=2,
            startup__podSeconds=5400,
            autoscaler__idleSeconds=2700,
            startup__giveUpSeconds=9000,
        )
        manifest = rayservice(values)
        assert manifest["metadata"]["annotations"] == {"ray.io/initializing-timeout": "9000"}
        options = manifest["spec"]["rayClusterConfig"]["autoscalerOptions"]
        assert options["idleTimeoutSeconds"] == 2700
        assert {entry["value"] for entry in options["env"]} == {"5400"}

    def test_the_autoscalers_variables_are_rays(self) -> None:
        from ray.autoscaler.v2.instance_manager import config

        source = Path(config.__file__).read_text()
        options = rayservice(changed({}, groups__encoder__maxPods=2))["spec"]["rayClusterConfig"]["autoscalerOptions"]
        for entry in options["env"]:
            assert f'"{entry["name"]}"' in source


def test_groups_that_may_grow_turn_the_autoscaler_on() -> None:
    still = rayservice({})["spec"]["rayClusterConfig"]
    assert still["enableInTreeAutoscaling"] is False
    assert "autoscalerOptions" not in still
    for name, pods in {"router": 2, "encoder": 1, "decoder": 1}.items():
        manifest = rayservice(changed({}, **{f"groups__{name}__maxPods": 3}))
        assert manifest["spec"]["rayClusterConfig"]["enableInTreeAutoscaling"] is True
        group = groups_of(manifest)[name]
        assert (group["minReplicas"], group["replicas"], group["maxReplicas"]) == (pods, pods, 3)


@pytest.mark.parametrize("file", VALUES_FILES)
def test_rays_autoscaler_reads_from_it_what_a_pod_of_each_group_offers(file) -> None:
    """By the autoscaler's own code: what it does not see here, it never starts a pod for."""
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    manifest = rayservice(values_of(file))
    cluster = {"metadata": {"name": "demo", "namespace": "models"}, "spec": manifest["spec"]["rayClusterConfig"]}
    types = _derive_autoscaling_config_from_ray_cr(cluster)["available_node_types"]
    assert types.pop("headgroup")["resources"]["CPU"] == 0
    placement = merged(values_of(file))["tessera"]["placement"]
    values = merged(values_of(file))["groups"]
    assert types.keys() == {"router", "decoder"} | ({"encoder"} if placement == "dedicated" else set())
    for name, node in types.items():
        assert node["resources"]["CPU"] == values[name]["cpus"]
        assert node["resources"].get("GPU", 0) == values[name].get("gpus", 0)
        assert node["resources"][f"tessera_{name}"] == values[name]["replicasPerPod"]
        assert (node["min_workers"], node["max_workers"]) == (values[name]["pods"], values[name]["maxPods"])


def test_streams_have_time_to_end() -> None:
    manifest = rayservice({"drainSeconds": 900})
    assert manifest["spec"]["rayClusterDeletionDelaySeconds"] == 900
    for name in ("router", "encoder", "decoder"):
        group = groups_of(manifest)[name]
        assert container_of(group)["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "900"]
        assert group["template"]["spec"]["terminationGracePeriodSeconds"] > 900


def test_gcs_fault_tolerance_by_redis_and_by_rocksdb() -> None:
    def options(**changes):
        return rayservice(changed({}, **changes))["spec"]["rayClusterConfig"].get("gcsFaultToleranceOptions")

    assert options() is None
    assert options(**REDIS) == {
        "backend": "redis",
        "redisAddress": "redis.data:6379",
        "redisPassword": {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}},
    }
    assert options(**ROCKSDB) == {"backend": "rocksdb", "storage": {"size": "10Gi"}}


def test_the_model_cache_is_every_pods_home_of_the_hub() -> None:
    made = changed({}, modelCache__enabled=True)
    (claim,) = (m for m in render(made) if m["kind"] == "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    yours = changed(made, modelCache__existingClaim="weights")
    assert not [m for m in render(yours) if m["kind"] == "PersistentVolumeClaim"]
    for values, name in ((made, claim["metadata"]["name"]), (yours, "weights")):
        for group in groups_of(rayservice(values)).values():
            (volume,) = (v for v in group["template"]["spec"]["volumes"] if v["name"] == "models")
            assert volume["persistentVolumeClaim"] == {"claimName": name}
            assert env_of(group)["HF_HOME"] == "/models"


def test_placement_of_pods_is_the_groups_own() -> None:
    groups = groups_of(rayservice(changed({}, **EVERY_OPTION)))
    assert groups["encoder"]["template"]["spec"]["nodeSelector"] == {"gpu": "l40s"}
    assert groups["encoder"]["template"]["spec"]["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert "nodeAffinity" in groups["decoder"]["template"]["spec"]["affinity"]
    assert "nodeSelector" not in groups["decoder"]["template"]["spec"]
