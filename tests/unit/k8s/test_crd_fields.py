"""The compact description of KubeRay's RayService is what the script derives from the CRD."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest
import yaml

from k8s.generate.crd_fields import FIELDS, manifest_schema, share

TOY_POD = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string", "description": "gone"}, "port": {"x-kubernetes-int-or-string": True}},
}
TOY = {
    "spec": {
        "versions": [
            {"name": "v1alpha1", "schema": {}},
            {
                "name": "v1",
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "apiVersion": {"type": "string"},
                            "kind": {"type": "string"},
                            "metadata": {"type": "object"},
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "head": TOY_POD,
                                    "workers": {"type": "array", "items": TOY_POD},
                                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                                    "mode": {"type": "string", "enum": ["a", "b"]},
                                },
                            },
                            "status": {"type": "object"},
                        },
                    }
                },
            },
        ]
    }
}


def toy(spec: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": "ray.io/v1", "kind": "Toy", "metadata": {"name": "x"}, "spec": spec}


GOOD = {"head": {"name": "a", "port": 1}, "workers": [{"name": "b", "port": "http"}], "labels": {"x": "y"}, "mode": "a"}


@pytest.mark.parametrize("schema", [manifest_schema(TOY), share(manifest_schema(TOY))], ids=["whole", "shared"])
def test_the_schema_takes_what_the_crd_takes_and_nothing_else(schema) -> None:
    jsonschema.validate(toy(GOOD), schema)
    wrong = [
        GOOD | {"nodes": 1},
        GOOD | {"head": {"name": "a", "prot": 1}},
        GOOD | {"head": {}},
        GOOD | {"workers": [{"name": 3}]},
        GOOD | {"labels": {"x": 1}},
        GOOD | {"mode": "c"},
    ]
    for spec in wrong:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(toy(spec), schema)


def test_a_shape_that_occurs_twice_is_written_once() -> None:
    shared = share(manifest_schema(TOY))
    spec = shared["properties"]["spec"]["properties"]
    assert spec["head"] == spec["workers"]["items"] == {"$ref": "#/$defs/shape0"}
    assert list(shared["$defs"]) == ["shape0"]


def test_the_kept_description_is_derived_from_the_crd() -> None:
    path = os.environ.get("TESSERA_KUBERAY_CRD")
    if not path:
        pytest.skip(
            "TESSERA_KUBERAY_CRD does not name KubeRay's ray.io_rayservices.yaml, which is not part of this project"
        )
    crd = yaml.load(Path(path).read_text(), Loader=yaml.CSafeLoader)
    assert json.loads(FIELDS.read_text()) == share(manifest_schema(crd))
