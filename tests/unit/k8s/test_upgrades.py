"""Rendering is deterministic, and an upgrade changes what its values say and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.unit.k8s.chart import CHART, K8S, VALUES_FILES, changed, merged, render, render_text, serve_config, values_of
from tests.unit.k8s.test_options import EVERYTHING

BF16, FP8 = values_of("values-scout-bf16-8.yaml"), values_of("values-scout-fp8-8.yaml")


def leaves(node: Any, where: str = "") -> dict[str, Any]:
    """Path -> value of every leaf; the Serve configuration is opened too."""
    if where.endswith(".serveConfigV2"):
        node = yaml.safe_load(node)
    if isinstance(node, dict):
        return {path: leaf for key, child in node.items() for path, leaf in leaves(child, f"{where}.{key}").items()}
    if isinstance(node, list):
        named = all(isinstance(item, dict) and ("name" in item or "groupName" in item) for item in node)
        keys = [item.get("groupName", item.get("name")) for item in node] if named else range(len(node))
        return {
            path: leaf
            for key, child in zip(keys, node, strict=True)
            for path, leaf in leaves(child, f"{where}[{key}]").items()
        }
    return {where: node}


def differences(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Path -> (before, after) of all that changes between two releases' manifests."""
    before, after = (
        leaves({f"{manifest['kind']}/{manifest['metadata']['name']}": manifest for manifest in render(values)})
        for values in (old, new)
    )
    # leaves() of a map of manifests: its keys lead the paths.
    return {
        path.removeprefix("."): (before.get(path), after.get(path))
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path)
    }


@pytest.mark.parametrize("values", [*map(values_of, VALUES_FILES), EVERYTHING], ids=[*VALUES_FILES, "everything"])
def test_rendering_twice_gives_the_same_bytes(values) -> None:
    assert render_text(values) == render_text(values)


@pytest.mark.parametrize(
    ("section", "deployment", "replicas"), [("encoder", "EncoderPool", (1, 4)), ("router", "Router", (2, 3))]
)
def test_scaling_a_pool_changes_its_number_alone(section, deployment, replicas) -> None:
    """Not an argument of the application: Serve would restart the replicas of every pool."""
    scaled = changed(BF16, **{f"tessera__{section}__replicas": replicas[1]})
    path = f"RayService/demo.spec.serveConfigV2.applications[tessera].deployments[{deployment}].num_replicas"
    assert differences(BF16, scaled) == {path: replicas}


def test_serve_restarts_nothing_when_a_pool_is_scaled() -> None:
    """By Serve's own rule (a private function): replicas restart where the version of their code changes."""
    from ray.serve._private.deploy_utils import get_app_code_version
    from ray.serve.schema import ServeApplicationSchema

    def version(values: dict[str, Any]) -> str:
        return get_app_code_version(ServeApplicationSchema.model_validate(serve_config(values)["applications"][0]))

    assert version(changed(BF16, tessera__encoder__replicas=4)) == version(BF16)
    assert version(changed(BF16, tessera__encoder__max_queued_tiles=64)) != version(BF16)


def test_changed_arguments_make_a_second_cluster_where_there_may_be_one() -> None:
    """KubeRay leaves the first cluster's configuration alone while it prepares a second."""
    annotation = "RayService/demo.spec.rayClusterConfig.headGroupSpec.template.metadata.annotations.tessera/arguments"
    found = differences({}, changed({}, tessera__router__max_images=4))
    assert sum(".serveConfigV2." in path for path in found) == 1
    assert {path for path in found if ".serveConfigV2." not in path} == {annotation}
    assert annotation not in differences({}, changed({}, tessera__router__replicas=1, groups__router__pods=1))


def test_without_a_second_cluster_changed_arguments_leave_the_pods_alone() -> None:
    found = differences(
        BF16, changed(BF16, tessera__router__max_images=4, tessera__llm__engine_kwargs__max_num_seqs=64)
    )
    assert all(".serveConfigV2." in path for path in found)
    assert len(found) == 2


def test_a_new_image_changes_the_image_of_every_pod_alone() -> None:
    found = differences(BF16, changed(BF16, image__tag="0.1.1"))
    assert len(found) == 4
    assert all(path.endswith(".image") and after == "tessera:0.1.1" for path, (_, after) in found.items())


def test_a_new_chart_version_does_not_start_a_new_cluster() -> None:
    """KubeRay compares pods' templates; a version in their labels would make a second cluster of it."""
    for manifest in render(EVERYTHING):
        if manifest["kind"] != "RayService":
            continue
        cluster = yaml.safe_dump(manifest["spec"]["rayClusterConfig"]["workerGroupSpecs"])
        version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
        assert f"tessera-{version}" not in cluster


def test_from_bfloat16_to_fp8_changes_what_the_files_say() -> None:
    found = differences(BF16, FP8)
    application, cluster = (
        "RayService/demo.spec.serveConfigV2.applications[tessera]",
        "RayService/demo.spec.rayClusterConfig",
    )
    assert {path.removeprefix(application) for path in found if path.startswith(application)} == {
        ".args.model.source",
        ".args.llm.gpus_per_node",
        ".args.llm.engine_kwargs.tensor_parallel_size",
        ".deployments[EncoderPool].num_replicas",
        ".deployments[LLMPool].num_replicas",
    }
    others = {path.removeprefix(cluster) for path in found if not path.startswith(application)}
    pods = {
        f".workerGroupSpecs[{group}].{field}"
        for group in ("encoder", "decoder")
        for field in ("replicas", "minReplicas")
    }
    limits = {
        f".workerGroupSpecs[decoder].template.spec.containers[ray-decoder].resources.{kind}.{resource}"
        for kind in ("requests", "limits")
        for resource in ("cpu", "memory", "nvidia.com/gpu")
    }
    most = {".workerGroupSpecs[encoder].maxReplicas", ".workerGroupSpecs[decoder].maxReplicas"}
    token = {
        f".{group}.template.spec.containers[ray-{name}].env[HF_TOKEN].{field}"
        for group, name in [("headGroupSpec", "head")]
        + [(f"workerGroupSpecs[{name}]", name) for name in ("router", "encoder", "decoder")]
        for field in ("name", "valueFrom.secretKeyRef.name", "valueFrom.secretKeyRef.key")
    }
    assert others == pods | limits | most | token


class TestGpuSum:
    """The chart refuses a strategy that the GPUs do not suffice for; the README states the sums."""

    @staticmethod
    def gpus(values: dict[str, Any]) -> int:
        chart = merged(values)
        # Colocated encoders live in the decoders' pods.
        names = ["decoder"] if chart["tessera"]["placement"] == "colocated" else ["encoder", "decoder"]
        return sum(chart["groups"][name]["maxPods"] * chart["groups"][name]["gpus"] for name in names)

    @pytest.mark.parametrize("file", [file for file in VALUES_FILES if file != "values-cpu-demo.yaml"])
    def test_the_readme_states_the_sums(self, file) -> None:
        once = self.gpus(values_of(file))
        assert f"| `{file}` | {once} | {2 * once} |" in (K8S / "README.md").read_text()

    @pytest.mark.parametrize("strategy", ["NewCluster", "None"])
    def test_just_enough_is_enough(self, strategy) -> None:
        need = self.gpus({}) * (2 if strategy == "NewCluster" else 1)
        render(changed({}, upgrade__strategy=strategy, upgrade__gpuCapacity=need))

    def test_an_incremental_upgrade_needs_a_surge_of_whole_pods(self) -> None:
        incremental = changed(
            {},
            upgrade__strategy="NewClusterWithIncrementalUpgrade",
            upgrade__incremental__gatewayClassName="istio",
            upgrade__incremental__maxSurgePercent=25,
            groups__encoder__maxPods=4,
            groups__decoder__maxPods=2,
        )
        # 4 encoders and one more; 2 decoders of 4 GPUs and one more.
        render(changed(incremental, upgrade__gpuCapacity=5 + 12))
        with pytest.raises(Exception, match=r"upgrade\.gpuCapacity: 16, .* need 17 GPUs"):
            render(changed(incremental, upgrade__gpuCapacity=16))
