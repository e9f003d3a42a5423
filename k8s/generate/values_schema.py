"""Puts the application's own schema into the chart: `python -m k8s.generate.values_schema`, after a change of settings.

Only the property `tessera`, the entries of `apiKeys.keys` and the definitions that `tessera` refers to are written; the
rest of values.schema.json is kept by hand. Helm then refuses a wrong key or value before anything reaches a cluster.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from router.config import AppConfig
from router.live_settings import ApiKeySettings

SCHEMA = Path(__file__).parents[1] / "tessera" / "values.schema.json"
# Where a key is read from is the chart's to say.
KEY_SOURCES = ("file", "env")
# Definitions of the chart's own.
OWN = ("env", "secretKey")


def with_application(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of the chart's values with the application's settings as their models describe them now."""
    application = AppConfig.model_json_schema()
    definitions = application.pop("$defs")
    api_key = ApiKeySettings.model_json_schema()
    for name in KEY_SOURCES:
        del api_key["properties"][name]
    api_keys = copy.deepcopy(schema["properties"]["apiKeys"])
    api_keys["properties"]["keys"]["items"] = api_key
    return schema | {
        "properties": schema["properties"] | {"tessera": application, "apiKeys": api_keys},
        "$defs": {name: schema["$defs"][name] for name in OWN} | definitions,
    }


def main() -> None:
    schema = with_application(json.loads(SCHEMA.read_text()))
    SCHEMA.write_text(json.dumps(schema, indent=2) + "\n")


if __name__ == "__main__":
    main()
