"""What the tests do to the Ray cluster that they are connected to, and ask of it."""

from __future__ import annotations

from typing import Any

import ray


def actors(prefix: str) -> list[ray.actor.ActorHandle]:
    """The named actors of the cluster whose names begin so, in order: Serve's replicas are
    `SERVE_REPLICA::application#deployment#...`, its deployment actors `SERVE_DEPLOYMENT_ACTOR::application...`.
    """
    named = sorted((actor["name"], actor["namespace"]) for actor in ray.util.list_named_actors(all_namespaces=True))
    return [ray.get_actor(name, namespace=namespace) for name, namespace in named if name.startswith(prefix)]


def kill_actors(prefix: str) -> int:
    """Ends them at once; says how many."""
    found = actors(prefix)
    for actor in found:
        ray.kill(actor)
    return len(found)


def bytes_used() -> int:
    """Bytes in the object stores of all nodes."""
    return sum(stats.object_store_bytes_used for stats in _store_stats())


def bytes_spilled() -> int:
    """Bytes that all nodes have spilled to disk since they started."""
    return sum(stats.spilled_bytes_total for stats in _store_stats())


def _store_stats() -> list[Any]:
    """Of each living node."""
    from ray._private.internal_api import node_stats

    alive = [node for node in ray.nodes() if node["Alive"]]
    stats = [node_stats(n["NodeManagerAddress"], n["NodeManagerPort"], include_memory_info=False) for n in alive]
    return [one.store_stats for one in stats]
