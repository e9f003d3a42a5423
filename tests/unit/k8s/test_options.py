"""The optional manifests beside the RayService."""

from __future__ import annotations

import json
from typing import Any

import pytest

from k8s.generate.dashboard import DASHBOARD
from router.openai_api import api
from tests.unit.k8s.chart import changed, container_of, groups_of, rayservice, render, render_text

SERVICE = "demo-serve-svc"


def of_kind(kind: str, **changes: Any) -> list[dict[str, Any]]:
    return [manifest for manifest in render(changed({}, **changes)) if manifest["kind"] == kind]


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a Kubernetes label selector with matchLabels and NotIn expressions selects a pod."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(labels.get(e["key"]) not in e["values"] for e in selector.get("matchExpressions", []))


def pods(name: str = "demo") -> dict[str, dict[str, str]]:
    """Group -> labels of its pods."""
    groups = groups_of(rayservice({}, name))
    return {group: spec["template"]["metadata"]["labels"] for group, spec in groups.items()}


def test_by_default_there_are_the_rayservice_and_budgets_for_disruption() -> None:
    assert {manifest["kind"] for manifest in render({})} == {"RayService", "PodDisruptionBudget"}


def test_every_manifest_carries_the_releases_labels() -> None:
    for manifest in render(EVERYTHING):
        assert manifest["metadata"]["labels"]["app.kubernetes.io/instance"] == "demo"
        assert manifest["metadata"]["name"].startswith("demo")


def test_a_budget_covers_each_pool_and_no_other_release() -> None:
    budgets = of_kind("PodDisruptionBudget", podDisruptionBudget__maxUnavailable=2)
    assert len(budgets) == 3
    for budget in budgets:
        component = budget["metadata"]["labels"]["app.kubernetes.io/component"]
        assert [group for group, labels in pods().items() if selects(budget["spec"]["selector"], labels)] == [component]
        assert not any(selects(budget["spec"]["selector"], labels) for labels in pods("other").values())
        assert budget["spec"]["maxUnavailable"] == 2
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert not of_kind("PodDisruptionBudget", podDisruptionBudget__enabled=False)


def test_the_ingress_routes_the_applications_paths_and_no_others() -> None:
    (ingress,) = of_kind(
        "Ingress",
        ingress__enabled=True,
        ingress__host="tessera.example",
        ingress__className="nginx",
        ingress__tlsSecret="tls",
        ingress__annotations={"nginx.ingress.kubernetes.io/proxy-body-size": "64m"},
    )
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == "tessera.example"
    assert {path["backend"]["service"]["name"] for path in rule["http"]["paths"]} == {SERVICE}
    assert ingress["spec"]["tls"] == [{"hosts": ["tessera.example"], "secretName": "tls"}]
    routed = [(path["path"], path["pathType"]) for path in rule["http"]["paths"]]
    check_routes([(path, kind == "Prefix") for path, kind in routed])


def test_the_http_route_does_the_same() -> None:
    (route,) = of_kind(
        "HTTPRoute",
        httpRoute__enabled=True,
        httpRoute__parentRefs=[{"name": "public", "namespace": "gateways"}],
        httpRoute__hostnames=["tessera.example"],
    )
    (rule,) = route["spec"]["rules"]
    assert rule["backendRefs"] == [{"name": SERVICE, "port": 8000}]
    assert rule["timeouts"] == {"request": "3600s"}
    check_routes([(match["path"]["value"], match["path"]["type"] == "PathPrefix") for match in rule["matches"]])


def check_routes(routes: list[tuple[str, bool]]) -> None:
    """Every endpoint of the Router is routed, and nothing of Serve's or Ray's is."""

    def routed(path: str) -> bool:
        return any(path == route or (prefix and path.startswith(f"{route}/")) for route, prefix in routes)

    endpoints = {route.path for route in api.routes}
    assert endpoints
    assert all(routed(path) for path in endpoints), endpoints
    assert not any(map(routed, ("/", "/-/healthz", "/-/routes", "/api/serve/applications/", "/healthz")))


class TestNetworkPolicy:
    @pytest.fixture
    def policies(self) -> dict[str, dict[str, Any]]:
        manifests = of_kind("NetworkPolicy", networkPolicy__enabled=True)
        return {manifest["metadata"]["name"].removeprefix("demo-"): manifest["spec"] for manifest in manifests}

    def test_every_pod_is_closed_in_both_directions(self, policies) -> None:
        spec = policies["pods"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert all(selects(spec["podSelector"], labels) for labels in pods().values())
        assert not any(selects(spec["podSelector"], labels) for labels in pods("other").values())

    def test_only_routers_fetch_pictures_and_only_from_public_addresses(self, policies) -> None:
        spec = policies["image-fetch"]
        assert [group for group, labels in pods().items() if selects(spec["podSelector"], labels)] == ["router"]
        (rule,) = spec["egress"]
        assert [port["port"] for port in rule["ports"]] == [80, 443]
        four, six = (peer["ipBlock"] for peer in rule["to"])
        assert set(four["except"]) >= {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"}
        assert six["cidr"] == "2000::/3"

    def test_pictures_by_url_can_be_switched_off(self) -> None:
        manifests = of_kind("NetworkPolicy", networkPolicy__enabled=True, networkPolicy__imageFetchPorts=[])
        assert "demo-image-fetch" not in [manifest["metadata"]["name"] for manifest in manifests]

    def test_clients_reach_port_8000_and_not_the_head(self, policies) -> None:
        spec = policies["clients"]
        assert [group for group, labels in pods().items() if selects(spec["podSelector"], labels)] == [
            "router",
            "encoder",
            "decoder",
        ]
        (rule,) = spec["ingress"]
        assert rule["ports"] == [{"protocol": "TCP", "port": 8000}]

    def test_the_operator_reaches_the_heads_dashboard(self, policies) -> None:
        spec = policies["head"]
        assert [group for group, labels in pods().items() if selects(spec["podSelector"], labels)] == ["head"]
        (rule,) = spec["ingress"]
        assert rule["from"] == [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kuberay-system"}}}
        ]
        assert {"protocol": "TCP", "port": 8265} in rule["ports"]


def test_prometheus_finds_the_metrics_port_of_every_pod() -> None:
    (monitor,) = of_kind("PodMonitor", podMonitor__enabled=True, podMonitor__labels={"release": "prometheus"})
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    for group in groups_of(rayservice({})).values():
        assert selects(monitor["spec"]["selector"], group["template"]["metadata"]["labels"])
        (port,) = (port for port in container_of(group)["ports"] if port["name"] == endpoint["port"])
        assert group["rayStartParams"]["metrics-export-port"] == str(port["containerPort"])
    assert {relabel["targetLabel"] for relabel in endpoint["relabelings"]} == {"release", "group"}
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_the_dashboard_comes_unchanged() -> None:
    (config,) = of_kind("ConfigMap", dashboard__enabled=True)
    assert json.loads(config["data"]["tessera-demo.json"]) == json.loads(DASHBOARD.read_text())
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_notes_lead_to_the_first_answer() -> None:
    notes = render_text({"upgrade": {"gpuCapacity": 10}}, "prod")["NOTES.txt"]
    assert "kubectl wait -n models rayservice/prod --for=condition=Ready" in notes
    assert "service/prod-serve-svc 8000:8000" in notes
    assert '"llama-4-scout"' in notes
    assert "takes 10 GPUs in all" in notes
    assert "GPUs in all" not in render_text({"upgrade": {"strategy": "None"}})["NOTES.txt"]


EVERYTHING = changed(
    {},
    modelCache__enabled=True,
    networkPolicy__enabled=True,
    ingress__enabled=True,
    ingress__host="tessera.example",
    httpRoute__enabled=True,
    httpRoute__parentRefs=[{"name": "public"}],
    podMonitor__enabled=True,
    dashboard__enabled=True,
)
