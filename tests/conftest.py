"""What the tests share: the demo checkpoint, and one running application on one cluster of three raylets."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from tests.application import Tessera, default_config, free_port, serve_run

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # as `make serve` starts Ray on a CPU

# A loopback address of the tests' own web hosts: the only one that is not public and may be fetched from.
WEB_HOST = "127.0.0.5"
ROOMS = {"router": "tessera_router", "encoder": "tessera_encoder", "llm": "tessera_decoder"}


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random-weight demo checkpoint in bfloat16, seed 0."""
    from demo.make_checkpoint import make_checkpoint

    path = tmp_path_factory.mktemp("checkpoint") / "tiny"
    make_checkpoint(path, seed=0)
    return path


@dataclass(frozen=True)
class Raylets:
    """A running cluster with Serve on it.

    address: of the cluster; http_port: of Serve's proxy; cluster: for a test that adds a node and takes it away again.
    """

    address: str
    http_port: int
    cluster: Cluster


@pytest.fixture(scope="session")
def three_raylets() -> Iterator[Raylets]:
    """One raylet for each pool, told apart by the custom resources of the pools; this process is connected to them.

    The only Ray that a session of tests starts, and the only Serve: a process cannot be connected to two.
    """
    import ray
    from ray import serve
    from ray.serve._private.constants import DEFAULT_TRACING_EXPORTER_IMPORT_PATH

    # A short path: the names of sockets below it must stay under 108 characters.
    folder = tempfile.mkdtemp(prefix="tessera-", dir="/tmp")
    os.environ["RAY_TMPDIR"] = folder
    # Only requests that ask for it (`traceparent`) are traced.
    os.environ["RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH"] = DEFAULT_TRACING_EXPORTER_IMPORT_PATH
    os.environ["RAY_SERVE_TRACING_SAMPLING_RATIO"] = "0"
    cluster = Cluster()
    for resource in ROOMS.values():
        cluster.add_node(num_cpus=2, object_store_memory=300 * 2**20, resources={resource: 1}, include_dashboard=False)
    ray.init(address=cluster.address, log_to_driver=False)
    port = free_port()
    serve.start(proxy_location="HeadOnly", http_options={"port": port})
    yield Raylets(cluster.address, port, cluster)
    serve.shutdown()
    ray.shutdown()
    cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def tessera(
    three_raylets: Raylets, tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tessera]:
    """`serve run` on the cluster of three raylets, started once for all tests that want a running application."""
    config = default_config(tiny_checkpoint, three_raylets.http_port)
    args = config["applications"][0]["args"]
    for section, resource in ROOMS.items():
        args[section]["resources"] = {resource: 0.1}
    args["llm"]["frontend_kwargs"] |= {"enable_auto_tool_choice": True, "tool_call_parser": "llama4_pythonic"}
    args["router"] |= {
        "fetch_private_networks": [f"{WEB_HOST}/32"],
        "fetch_timeout_s": 3,
        "embedding_store_bytes": 16 * 2**20,
        "in_flight_bytes": 200 * 2**20,  # fits in each raylet's object store, beside what is kept
    }
    with serve_run(config, three_raylets.address, tmp_path_factory.mktemp("application")) as running:
        yield running
