"""API keys: the Secret is seen by the Routers' pods alone, and the Routers look for each key where it lies."""

from __future__ import annotations

from pathlib import PurePosixPath

from router.live_settings import live_settings
from tests.unit.k8s.chart import changed, container_of, groups_of, rayservice, serve_config

KEYS = [{"name": "acme", "requests_per_minute": 600, "max_concurrent_requests": 8}, {"name": "ci", "trusted": True}]
WITH_KEYS = changed({}, apiKeys__secretName="tessera-keys", apiKeys__keys=KEYS)


def router_entry(values) -> dict:
    (entry,) = (d for d in serve_config(values)["applications"][0]["deployments"] if d["name"] == "Router")
    return entry


def test_without_keys_there_is_no_user_config_and_no_secret() -> None:
    assert "user_config" not in router_entry({})
    assert "api-keys" not in str(rayservice({}))


def test_each_key_is_read_from_the_secrets_mount() -> None:
    found = live_settings(router_entry(WITH_KEYS)["user_config"]).api_keys
    assert [(key.name, key.requests_per_minute, key.max_concurrent_requests, key.trusted) for key in found] == [
        ("acme", 600, 8, False),
        ("ci", None, None, True),
    ]
    router = groups_of(rayservice(WITH_KEYS))["router"]
    (volume,) = (v for v in router["template"]["spec"]["volumes"] if v["name"] == "api-keys")
    assert volume["secret"] == {"secretName": "tessera-keys", "defaultMode": 0o440}
    (mount,) = (m for m in container_of(router)["volumeMounts"] if m["name"] == "api-keys")
    assert mount["readOnly"]
    assert "subPath" not in mount, "a mount by subPath would not see a changed Secret"
    assert [PurePosixPath(str(key.file)) for key in found] == [
        PurePosixPath(mount["mountPath"], key.name) for key in found
    ]


def test_no_other_pod_sees_the_secret() -> None:
    for name, group in groups_of(rayservice(WITH_KEYS)).items():
        assert ("tessera-keys" in str(group)) == (name == "router")


def test_changed_limits_change_nothing_that_restarts() -> None:
    other = changed(WITH_KEYS, apiKeys__keys=[*KEYS, {"name": "new"}])
    assert rayservice(WITH_KEYS)["spec"]["rayClusterConfig"] == rayservice(other)["spec"]["rayClusterConfig"]
    before, after = (serve_config(values)["applications"][0] for values in (WITH_KEYS, other))
    assert before["args"] == after["args"]
    assert before["deployments"] != after["deployments"]
