"""The chart for the tests: its values files, and what Helm makes of them."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import yaml

K8S = Path(__file__).parents[3] / "k8s"
CHART = K8S / "tessera"
# "values.yaml" is the chart with its defaults.
VALUES_FILES = sorted(path.name for path in CHART.glob("values*.yaml"))
POOLS = {"router": "router", "encoder": "encoder", "decoder": "llm"}


def values_of(file: str) -> dict[str, Any]:
    """What `helm install -f FILE` adds to the defaults."""
    return {} if file == "values.yaml" else yaml.safe_load((CHART / file).read_text())


def merged(values: dict[str, Any]) -> dict[str, Any]:
    """`values` over the defaults, as Helm lays them: maps are merged, null removes a key."""
    return _laid_over(yaml.safe_load((CHART / "values.yaml").read_text()), values)


def _laid_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            result[key] = _laid_over(below[key], value)
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return result


def changed(values: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy of `values` with each change at its path, written with `__` for dots."""
    result = copy.deepcopy(values)
    for path, value in changes.items():
        *parents, last = path.split("__")
        section = result
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = value
    return result


@cache
def _chart() -> helm_python.Chart:
    return helm_python.Chart.load(CHART)


def render_text(values: dict[str, Any], name: str = "demo") -> dict[str, str]:
    """Template file -> what it renders to. Raises helm_python's HelmValuesError and HelmRenderError."""
    rendered = _chart().render(values, name=name, namespace="models")
    return {path.removeprefix("tessera/templates/"): text for path, text in rendered.items() if text.strip()}


def render(values: dict[str, Any], name: str = "demo") -> list[dict[str, Any]]:
    """The manifests of a release, NOTES.txt apart."""
    texts = render_text(values, name)
    documents = [document for path, text in texts.items() if path != "NOTES.txt" for document in _documents(text)]
    return sorted(documents, key=lambda document: (document["kind"], document["metadata"]["name"]))


def _documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


def rayservice(values: dict[str, Any], name: str = "demo") -> dict[str, Any]:
    """The RayService of a release."""
    (manifest,) = (document for document in render(values, name) if document["kind"] == "RayService")
    return manifest


def serve_config(values: dict[str, Any]) -> dict[str, Any]:
    """The Serve configuration in the RayService of a release."""
    return yaml.safe_load(rayservice(values)["spec"]["serveConfigV2"])


def groups_of(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Name -> group of a RayService, the head (whose template stands beside the others) included."""
    cluster = manifest["spec"]["rayClusterConfig"]
    return {"head": cluster["headGroupSpec"]} | {group["groupName"]: group for group in cluster["workerGroupSpecs"]}


def container_of(group: dict[str, Any]) -> dict[str, Any]:
    """The Ray container of a group's pods."""
    return group["template"]["spec"]["containers"][0]


def env_of(group: dict[str, Any]) -> dict[str, str]:
    """The plain environment variables of a group's Ray container."""
    return {entry["name"]: entry["value"] for entry in container_of(group)["env"] if "value" in entry}
