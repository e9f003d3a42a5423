"""Values: every one described and checked, and wrong ones refused with a message that names them."""

from __future__ import annotations

import json
import re

import helm_python
import jsonschema
import pytest
import yaml

from k8s.generate.values_schema import SCHEMA, with_application
from tests.unit.k8s.chart import CHART, VALUES_FILES, changed, render, values_of

INCREMENTAL = {
    "upgrade__strategy": "NewClusterWithIncrementalUpgrade",
    "upgrade__incremental__gatewayClassName": "istio",
}


def test_the_applications_part_of_the_schema_is_what_the_script_writes() -> None:
    schema = json.loads(SCHEMA.read_text())
    assert schema == with_application(schema), "run `python -m k8s.generate.values_schema`"


def test_the_schema_is_one_that_old_and_new_helm_read() -> None:
    schema = json.loads(SCHEMA.read_text())
    assert schema["$schema"].startswith("http://json-schema.org/draft-07/")
    jsonschema.Draft7Validator.check_schema(schema)


def test_helm_finds_nothing_to_complain_of() -> None:
    report = helm_python.lint(CHART, {}, strict=True)
    assert report["errors"] == []
    assert [message["error"] for message in report["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("file", VALUES_FILES)
def test_helm_finds_nothing_to_complain_of_in(file) -> None:
    assert helm_python.lint(CHART, values_of(file), strict=True)["errors"] == []


def paths(node: dict, schema: dict, where: str = "") -> set[str]:
    """The keys of values that the chart itself defines; maps that are the user's to fill end a path."""
    found = set()
    for key, value in node.items():
        path = f"{where}.{key}" if where else key
        child = schema["properties"][key]
        if isinstance(value, dict) and "properties" in child and key != "tessera":
            found |= paths(value, child, path)
        else:
            found.add(path)
    return found


def schema_paths(schema: dict, where: str = "") -> set[str]:
    found = set()
    for key, child in schema["properties"].items():
        path = f"{where}.{key}" if where else key
        if "properties" in child and key != "tessera":
            found |= schema_paths(child, path)
        else:
            found.add(path)
    return found


def test_the_defaults_name_every_value_that_there_is() -> None:
    schema = json.loads(SCHEMA.read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    for reference in ("huggingFace.tokenSecret", "gcsFaultTolerance.redisPasswordSecret"):
        parent, key = reference.split(".")
        schema["properties"][parent]["properties"][key] = schema["$defs"]["secretKey"]
    assert paths(defaults, schema) == schema_paths(schema) - {"global"}


def test_every_value_is_used_by_a_template() -> None:
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    for path in schema_paths(json.loads(SCHEMA.read_text())) - {"global", "tessera"}:
        assert re.search(rf"\b{path.rsplit('.', 1)[-1]}\b", templates), path


# (changes, what the message must say): an unknown key, a wrong type or value, a sum that cannot be.
WRONG = [
    ({"imagee": {}}, "imagee"),
    ({"image__tag": "latest"}, "/image/tag"),
    ({"image__pullPolicy": "Sometimes"}, "/image/pullPolicy"),
    ({"tessera__encodr": {}}, "encodr"),
    ({"tessera__encoder__replica": 2}, "replica"),
    ({"tessera__encoder__replicas": 0}, "/tessera/encoder/replicas"),
    ({"tessera__model__dtype": "float16"}, "/tessera/model/dtype"),
    ({"tessera__model__source": None}, "source"),
    ({"tessera__llm__gpus_per_node": 4}, "tessera.llm.gpus_per_node"),
    ({"tessera__router__resources": {"mine": 1}}, "tessera.router.resources"),
    ({"tessera__encoder__replicas": 5}, "tessera.encoder.replicas: 5 need 5 pods"),
    (
        {"tessera__encoder__autoscaling": {"max_replicas": 5, "target_load": 34}},
        "tessera.encoder.autoscaling.max_replicas: 5 need 5 pods",
    ),
    ({"tessera__encoder__num_gpus": 0.5}, "groups.encoder.gpus"),
    ({"tessera__encoder__num_cpus": 9}, "groups.encoder.cpus"),
    ({"tessera__llm__engine_kwargs__tensor_parallel_size": 8}, "groups.decoder.gpus"),
    ({"tessera__llm__engine_kwargs__pipeline_parallel_size": 2}, "groups.decoder.gpus"),
    ({"groups__encoder__pods": 3, "groups__encoder__maxPods": 3}, "groups.encoder.pods"),
    ({"groups__router__pods": 3, "tessera__router__replicas": 3}, "groups.router.maxPods"),
    ({"groups__router__gpus": 1}, "gpus"),
    ({"groups__decoder__memoryGiB": "128Gi"}, "/groups/decoder/memoryGiB"),
    ({"groups__decoder__objectStoreGiB": 127}, "groups.decoder.memoryGiB"),
    ({"tessera__router__embedding_store_bytes": 8 * 2**30}, "tessera.router.embedding_store_bytes"),
    ({"tessera__router__in_flight_bytes": 2 * 2**30}, "tessera.router.embedding_store_bytes and in_flight_bytes"),
    ({"groups__head__pods": 2}, "pods"),
    ({"env": {"RAY_USAGE_STATS_ENABLED": 0}}, "/env/RAY_USAGE_STATS_ENABLED"),
    ({"upgrade__strategy": "Rolling"}, "/upgrade/strategy"),
    ({"upgrade__gpuCapacity": 8}, "upgrade.gpuCapacity: 8"),
    ({**INCREMENTAL, "upgrade__gpuCapacity": 9}, "upgrade.gpuCapacity: 9"),
    ({"upgrade__strategy": "None", "upgrade__gpuCapacity": 4}, "upgrade.gpuCapacity: 4"),
    ({"upgrade__strategy": "NewClusterWithIncrementalUpgrade"}, "upgrade.incremental.gatewayClassName"),
    ({**INCREMENTAL, "ingress__enabled": True, "ingress__host": "a.example"}, "ingress.enabled"),
    ({"ingress__enabled": True}, "ingress.host"),
    ({"httpRoute__enabled": True}, "httpRoute.parentRefs"),
    ({"gcsFaultTolerance__enabled": True}, "gcsFaultTolerance.redisAddress"),
    ({"gcsFaultTolerance__backend": "etcd"}, "/gcsFaultTolerance/backend"),
    ({"modelCache__enabled": True, "modelCache__accessMode": "ReadOnlyMany"}, "modelCache.accessMode"),
    ({"drainSeconds": -1}, "/drainSeconds"),
    ({"startup__podSeconds": "1h"}, "/startup/podSeconds"),
    ({"networkPolicy__imageFetchPorts": [0]}, "/networkPolicy/imageFetchPorts"),
    ({"apiKeys": ["secret"]}, "apiKeys"),
    ({"apiKeys__secretName": "keys"}, "apiKeys.keys: empty"),
    ({"apiKeys__keys": [{"name": "acme"}]}, "apiKeys.secretName"),
    ({"apiKeys__keys": [{"name": "acme", "key": "secret"}]}, "/apiKeys/keys/0"),
    ({"apiKeys__keys": [{"name": "acme", "file": "/etc/passwd"}]}, "/apiKeys/keys/0"),
    ({"apiKeys__keys": [{"name": "../acme"}]}, "/apiKeys/keys/0/name"),
]


@pytest.mark.parametrize(("changes", "named"), WRONG, ids=[", ".join(changes) for changes, _ in WRONG])
def test_a_wrong_value_is_refused_by_name(changes, named) -> None:
    with pytest.raises(helm_python.HelmError) as refused:
        render(changed({}, **changes))
    # Helm's schema messages write a path with slashes or dots, by its version.
    said = str(refused.value)
    assert named in said or named.lstrip("/").replace("/", ".") in said


@pytest.mark.parametrize("name", ["Demo", "1demo", "de.mo", "d" * 48])
def test_a_release_name_that_kuberay_refuses_is_refused_here(name) -> None:
    with pytest.raises(helm_python.HelmError, match="release name"):
        render({}, name=name)


@pytest.mark.parametrize("file", VALUES_FILES)
def test_a_wrong_value_in_a_ready_made_file_would_be_refused(file) -> None:
    """The files lie over the defaults: a check that a file switched off would show here."""
    # Colocated encoders are counted by the decoders.
    pool = "llm" if file == "values-scout-colocated-8.yaml" else "encoder"
    replicas = 2 if file == "values-cpu-demo.yaml" else 9
    with pytest.raises(helm_python.HelmError, match=rf"tessera\.{pool}\.replicas"):
        render(changed(values_of(file), **{f"tessera__{pool}__replicas": replicas}))
