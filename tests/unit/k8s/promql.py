"""Metric names in PromQL expressions, as far as the dashboard writes them."""

from __future__ import annotations

import re
from typing import Any

_HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")


def metric_names(expression: str) -> set[str]:
    """The metrics that an expression selects: a name before a brace."""
    return set(re.findall(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{", expression))


def dashboard_metrics(dashboard: dict[str, Any]) -> set[str]:
    """The metrics of all panels and variables."""
    names: set[str] = set()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            found = metric_names(target["expr"])
            assert found, f"{panel['title']}: no metric in {target['expr']!r}"
            names |= found
    for variable in dashboard["templating"]["list"]:
        names |= set(re.findall(r"label_values\((\w+),", str(variable["query"])))
    return names


def declared_names(exported: str) -> set[str]:
    """What an exported series may have been declared as: its name without Ray's prefix and suffixes."""
    name = exported.removeprefix("ray_")
    forms = {name, name.removesuffix("_total")}
    return forms | {name.removesuffix(part) for part in _HISTOGRAM_PARTS}
