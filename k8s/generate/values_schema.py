"""Puts the application's own schema into the chart: `python -m k8s.generate.values_schema`, after a change of settings.

Only the property `tessera` and the definitions that it refers to are written; the rest of values.schema.json is kept
by hand. Helm then refuses a wrong key or value of `tessera:` before anything reaches a cluster.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from router.config import AppConfig

SCHEMA = Path(__file__).parents[1] / "tessera" / "values.schema.json"
# Definitions of the chart's own.
OWN = ("env", "secretKey")


def with_application(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of the chart's values with `tessera` as AppConfig describes it now."""
    application = AppConfig.model_json_schema()
    definitions = application.pop("$defs")
    return schema | {
        "properties": schema["properties"] | {"tessera": application},
        "$defs": {name: schema["$defs"][name] for name in OWN} | definitions,
    }


def main() -> None:
    schema = with_application(json.loads(SCHEMA.read_text()))
    SCHEMA.write_text(json.dumps(schema, indent=2) + "\n")


if __name__ == "__main__":
    main()
