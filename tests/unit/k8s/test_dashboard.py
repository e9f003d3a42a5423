"""The dashboard is what its script writes, and asks for metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import ray
import ray.serve

from k8s.generate.dashboard import DASHBOARD, ROWS, dashboard
from tests.unit.k8s.promql import dashboard_metrics, declared_names, metric_names

ROOT = Path(__file__).parents[3]
# Of the raylets, whose sources are not Python; the live test looks for all names in a running application's export.
RAYLET_METRICS = {
    "ray_object_manager_bytes",
    "ray_object_store_available_memory",
    "ray_object_store_used_memory",
    "ray_spill_manager_objects_bytes",
}


def test_the_file_is_what_the_script_writes() -> None:
    assert json.loads(DASHBOARD.read_text()) == dashboard(), "run `python -m k8s.generate.dashboard`"


def test_there_is_a_row_for_each_stage() -> None:
    assert [row.split()[0] for row in ROWS] == ["Clients", "Encoders", "Hand-off", "Decoders", "Cache", "Replicas"]


@pytest.mark.parametrize("name", sorted(dashboard_metrics(dashboard()) - RAYLET_METRICS))
def test_a_metric_is_declared_where_its_name_says(name) -> None:
    if name.startswith("ray_tessera_"):
        room = {"encoder": "encoder_pool", "router": "router", "llm": "llm_pool"}[name.split("_")[2]]
        sources = [ROOT / room / "metrics.py"]
    else:
        assert name.startswith("ray_serve_")
        sources = list((Path(ray.serve.__file__).parent / "_private").rglob("*.py"))
    text = "".join(path.read_text() for path in sources)
    # Serve's proxy writes the protocol into the names of its metrics.
    forms = (re.escape(declared).replace("http", r"(http|\{[^}]+\})") for declared in declared_names(name))
    assert any(re.search(f'"{form}"', text) for form in forms), name


def test_the_table_for_operators_names_every_metric_and_no_other() -> None:
    sources = "".join((ROOT / room / "metrics.py").read_text() for room in ("encoder_pool", "llm_pool", "router"))
    declared = set(re.findall(r'"(tessera_\w+)"', sources))
    table = set(re.findall(r"^\| `(tessera_\w+)` \|", (ROOT / "k8s" / "README.md").read_text(), re.MULTILINE))
    assert table == declared


def test_panels_do_not_overlap_and_have_identities() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert all(0 <= x < 24 for x, _ in cells)
        taken |= cells


def test_names_are_found_in_expressions() -> None:
    assert metric_names('sum (rate(a_total{x="{y}"}[1m])) / b_sum{c=~".*"}') == {"a_total", "b_sum"}
