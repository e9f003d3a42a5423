"""Whether what the settings let pictures take fits in the object store of the machine."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from router.config import RouterSettings
from router.config_error import ConfigError

logger = logging.getLogger("ray.serve")


def check_object_stores(settings: RouterSettings, nodes: Sequence[Mapping[str, Any]]) -> None:
    """Logs the sum, and what the living nodes of `ray.nodes()` that take replicas have for it.

    Raises ConfigError where one node is the whole cluster and cannot hold it. Of several, the smallest may hold none of
    it or others may still come: a warning (the Helm chart holds the settings against its groups of pods).
    """
    stores = [
        int(node["Resources"].get("object_store_memory", 0))
        for node in nodes
        if node["Alive"] and node["Resources"].get("CPU")
    ]
    in_flight = settings.replicas * settings.in_flight_bytes
    total = settings.embedding_store_bytes + in_flight
    account = (
        f"embedding_store_bytes {settings.embedding_store_bytes:,} and in_flight_bytes for {settings.replicas} "
        f"router(s) {in_flight:,}: {total:,} of {sum(stores):,} bytes in object stores"
    )
    if len(stores) == 1 and total > stores[0]:
        raise ConfigError(f"args.router: {account}")
    if stores and total > min(stores):
        logger.warning(
            "%s; the smallest has %s: a node that holds all pictures would spill to disk", account, f"{min(stores):,}"
        )
    else:
        logger.info(account)
