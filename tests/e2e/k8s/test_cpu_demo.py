"""The CPU demo of the chart, started: its Serve configuration on a cluster of nodes like its pods."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import ray
from ray.cluster_utils import Cluster

from k8s.generate.dashboard import DASHBOARD
from tests.application import Tessera, free_port, serve_run
from tests.pictures import part, picture, user
from tests.unit.k8s.chart import container_of, groups_of, rayservice, serve_config, values_of
from tests.unit.k8s.promql import dashboard_metrics

pytestmark = pytest.mark.slow

DEMO = values_of("values-cpu-demo.yaml")
# Counted from the first event on, which does not come here: no graph is captured on a CPU, and no decode is retried.
WITHOUT_EVENT = {
    "ray_tessera_encoder_padding_tiles_total",
    "ray_tessera_encoder_failed_graphs_total",
    "ray_tessera_router_retries_total",
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[str]:
    """A node for the head and one for each pod, with the resources that the chart gives them."""
    # A short path: the names of sockets below it must stay under 108 characters.
    folder = tempfile.mkdtemp(prefix="tessera-k8s-", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        store = {"object_store_memory": 300 * 2**20, "include_dashboard": False}
        groups = groups_of(rayservice(DEMO))
        head = groups.pop("head")
        cluster = Cluster(True, head_node_args=store | {"num_cpus": int(head["rayStartParams"]["num-cpus"])})
        for group in groups.values():
            custom = {name: float(amount) for name, amount in group["resources"].items()}
            cpus = int(container_of(group)["resources"]["limits"]["cpu"])
            for _ in range(group["replicas"]):
                cluster.add_node(num_cpus=cpus, resources=custom, **store)
        yield cluster.address
        ray.shutdown()
        cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def demo(nodes: str, tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tessera]:
    """The application, with what is otherwise here: the place of the model, and one HTTP port for all nodes."""
    config = serve_config(DEMO)
    config["http_options"] = {"host": "127.0.0.1", "port": free_port()}
    config["proxy_location"] = "HeadOnly"
    config["applications"][0]["args"]["model"]["source"] = str(tiny_checkpoint)
    with serve_run(config, nodes, tmp_path_factory.mktemp("demo")) as running:
        yield running


def ask(demo: Tessera, seed: int) -> httpx.Response:
    body = {"model": demo.model, "messages": [user(part(picture(seed)), "What?")], "max_tokens": 4}
    return httpx.post(f"{demo.url}/v1/chat/completions", json=body, timeout=60)


def test_it_answers_a_picture(demo: Tessera) -> None:
    answer = ask(demo, 1)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 4


def test_every_replica_sits_in_its_own_group(demo: Tessera) -> None:
    """A group's resource is on its nodes alone, and each replica reserves a whole one."""
    ray.init(address=demo.address, log_to_driver=False, ignore_reinit_error=True)
    left = ray.available_resources()
    groups = ("tessera_router", "tessera_encoder", "tessera_decoder")
    assert all(ray.cluster_resources()[group] == 1 for group in groups)
    assert not any(left.get(group) for group in groups)


def test_the_dashboard_asks_for_metrics_that_are_exported(demo: Tessera) -> None:
    ray.init(address=demo.address, log_to_driver=False, ignore_reinit_error=True)
    wanted = dashboard_metrics(json.loads(DASHBOARD.read_text())) - WITHOUT_EVENT
    seen: set[str] = set()
    # A gauge is exported for some seconds after it was set, so load goes on while the export is read.
    deadline = time.monotonic() + 90
    seed = 10
    while not wanted <= seen and time.monotonic() < deadline:
        assert ask(demo, seed := seed + 1).status_code == 200
        seen |= {line.split("{")[0] for line in exported().splitlines() if not line.startswith("#")}
        time.sleep(1)
    assert wanted - seen == set()


def exported() -> str:
    """The metrics of every node."""
    ports = {(node["NodeManagerAddress"], node["MetricsExportPort"]) for node in ray.nodes() if node["Alive"]}
    return "".join(httpx.get(f"http://{host}:{port}/metrics", timeout=10).text for host, port in sorted(ports))
