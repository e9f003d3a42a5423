"""Derives the compact description of KubeRay's RayService that the tests hold the chart against.

python -m k8s.generate.crd_fields CRD.yaml [OUT.json]   # CRD.yaml: KubeRay's ray.io_rayservices.yaml

The result is a JSON schema with names, types, enumerations and required fields alone, unknown fields refused, and every
shape that occurs more than once (a pod template above all) written once. Descriptions, defaults, patterns and CEL rules
are left out.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

FIELDS = Path(__file__).parents[2] / "tests" / "data" / "rayservice_fields.json"
API_VERSION = "v1"


def rayservice_schema(crd: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI schema of RayService v1 in KubeRay's CustomResourceDefinition."""
    version = next(version for version in crd["spec"]["versions"] if version["name"] == API_VERSION)
    return version["schema"]["openAPIV3Schema"]


def json_schema(node: dict[str, Any], *, values: bool = False) -> dict[str, Any]:
    """A structural schema of Kubernetes as a JSON schema that refuses unknown fields.

    values: keep what limits a value too (pattern, minimum, maximum), not only names, types and enumerations.
    """
    schema: dict[str, Any] = {}
    if node.get("x-kubernetes-int-or-string"):
        schema["type"] = ["integer", "string"]
    elif "type" in node:
        schema["type"] = node["type"]
    kept = ("enum", "required") + (("pattern", "minimum", "maximum") if values else ())
    for key in kept:
        if key not in node:
            continue
        # A pattern of an integer-or-string is about the string; JSON schema agrees with that.
        schema[key] = node[key]
    if "properties" in node:
        schema["properties"] = {name: json_schema(child, values=values) for name, child in node["properties"].items()}
        if not node.get("x-kubernetes-preserve-unknown-fields"):
            schema["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            schema[key] = json_schema(node[key], values=values)
    return schema


def manifest_schema(crd: dict[str, Any], *, values: bool = False) -> dict[str, Any]:
    """The JSON schema of a RayService manifest as a chart writes it: any metadata, no status."""
    schema = json_schema(rayservice_schema(crd), values=values)
    schema["properties"]["metadata"] = {"type": "object"}
    schema["properties"].pop("status", None)
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return schema


def share(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema with object shapes that occur more than once under `$defs`, in order of first use."""
    times: Counter[str] = Counter()
    _count(schema, times)
    names: dict[str, str] = {}
    definitions: dict[str, Any] = {}
    root = {key: _shared(value, key, times, names, definitions) for key, value in schema.items()}
    return root | {"$defs": definitions}


def _key(node: Any) -> str:
    return json.dumps(node, sort_keys=True)


def _count(node: Any, times: Counter[str]) -> None:
    if not isinstance(node, dict):
        return
    if "properties" in node:
        times[_key(node)] += 1
    for child in node.get("properties", {}).values():
        _count(child, times)
    for key in ("items", "additionalProperties"):
        _count(node.get(key), times)


def _shared(value: Any, key: str, times: Counter[str], names: dict[str, str], definitions: dict[str, Any]) -> Any:
    """`value` of the schema keyword `key`, with references in the place of repeated shapes."""
    if key == "properties":
        return {name: _reference(child, times, names, definitions) for name, child in value.items()}
    if key in ("items", "additionalProperties") and isinstance(value, dict):
        return _reference(value, times, names, definitions)
    return value


def _reference(node: dict[str, Any], times: Counter[str], names: dict[str, str], definitions: dict[str, Any]) -> Any:
    whole = _key(node)
    if whole not in names:
        short = {key: _shared(value, key, times, names, definitions) for key, value in node.items()}
        if times[whole] < 2:
            return short
        names[whole] = f"shape{len(definitions)}"
        definitions[names[whole]] = short
    return {"$ref": f"#/$defs/{names[whole]}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("crd", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=FIELDS)
    options = parser.parse_args()
    fields = share(manifest_schema(yaml.safe_load(options.crd.read_text())))
    options.out.write_text(json.dumps(fields, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
