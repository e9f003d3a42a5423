"""What the tests do to the Ray cluster that they are connected to, and ask of it."""

from __future__ import annotations

import os
from typing import Any

import psutil
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


def replica_processes(application: str, deployment: str) -> list[psutil.Process]:
    """The processes of its replicas on the cluster of the tests."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if " ".join(process.info["cmdline"] or []).startswith(f"ray::ServeReplica:{application}:{deployment}"):
            raylets = [" ".join(parent.cmdline()) for parent in process.parents()]
            if any(os.environ["RAY_TMPDIR"] in raylet for raylet in raylets):
                found.append(process)
    return found


def engine_processes(application: str) -> list[psutil.Process]:
    """The engine processes of its decoders."""
    below = [child for one in replica_processes(application, "LLMPool") for child in one.children(recursive=True)]
    return [process for process in below if "EngineCore" in " ".join(process.cmdline())]
