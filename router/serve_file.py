"""What of a Serve configuration file would fail only at its deployment, since Ray's schema takes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

MAX_PORT = 65535


def check_serve_file(raw: dict[str, Any], application: dict[str, Any], deployments: Sequence[str]) -> None:
    """raw: the whole file; application: the entry of Tessera; deployments: the names of its deployments.

    Raises ValueError that names the field.
    """
    port = (raw.get("http_options") or {}).get("port", 8000)
    if not 0 <= port <= MAX_PORT:
        raise ValueError(f"http_options.port: must be at most {MAX_PORT} (got {port})")
    prefix = application.get("route_prefix", "/")
    if prefix is not None and (not prefix.startswith("/") or (prefix != "/" and prefix.endswith("/")) or "{" in prefix):
        raise ValueError(
            f"applications.route_prefix: must begin with a slash and not end with one, e.g. /tessera (got {prefix!r})"
        )
    for entry in application.get("deployments", []):
        if entry["name"] not in deployments:
            raise ValueError(
                f"applications.deployments: no deployment is called {entry['name']!r}; there are "
                + ", ".join(deployments)
            )


def check_checkpoint(source: str) -> None:
    """Looks for a checkpoint that is a folder; a hub id (`owner/name`) is left to be found when it is loaded.

    Raises ValueError where the folder, or the configuration in it, is not there.
    """
    path = Path(source).expanduser()
    hub_id = source.count("/") <= 1 and not source.startswith((".", "/", "~")) and not Path(path.parts[0]).is_dir()
    if hub_id:
        return
    if not path.is_dir():
        raise ValueError(f"args.model.source: there is no folder {source}")
    if not (path / "config.json").is_file():
        raise ValueError(f"args.model.source: {source} holds no config.json")
