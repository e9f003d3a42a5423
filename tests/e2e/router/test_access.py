"""API keys on a running application: switched on, rotated and switched off by `user_config`, without a restart."""

from __future__ import annotations

import copy
import json
import time

import httpx
import pytest
import ray
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema

from router.openai_api import api
from tests.pictures import part, picture, user

ACME, CI, NEXT = "acme-key-0123456789", "ci-key-0123456789", "next-key-0123456789"
SETTLE_S = 60


class Door:
    """Deploys the running application's configuration again, with other keys."""

    def __init__(self, tessera, folder) -> None:
        self._tessera = tessera
        self._folder = folder

    def set_keys(self, *keys: dict) -> None:
        config = copy.deepcopy(self._tessera.config)
        if keys:
            entry = {"name": "Router", "user_config": {"api_keys": list(keys)}}
            config["applications"][0]["deployments"] = [entry]
        _get_global_client().deploy_apps(ServeDeploySchema.model_validate(config), _blocking=True)

    def key(self, name: str, secret: str, **more) -> dict:
        (self._folder / name).write_text(secret)
        return {"name": name, "file": str(self._folder / name)} | more

    def get(self, path: str = "/v1/models", key: str | None = None) -> httpx.Response:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        with httpx.Client() as client:
            # The path as it is: in a URL httpx would resolve its dots.
            return client.get(self._tessera.url, headers=headers, extensions={"target": path.encode()})

    def ask(self, key: str, *content, **more) -> httpx.Response:
        body = {"model": self._tessera.model, "messages": [user(*content)], "max_tokens": 2} | more
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.post(f"{self._tessera.url}/v1/chat/completions", json=body, headers=headers, timeout=60)

    def until(self, status: int, key: str | None) -> None:
        deadline = time.monotonic() + SETTLE_S
        while (answer := self.get(key=key)).status_code != status:
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.2)


def replicas() -> set[str]:
    return {actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True) if "REPLICA" in actor["name"]}


@pytest.fixture(scope="module")
def door(tessera, tmp_path_factory):
    before = replicas()
    door = Door(tessera, tmp_path_factory.mktemp("keys"))
    door.set_keys(door.key("acme", ACME), door.key("ci", CI, requests_per_minute=1, tenant="tests"))
    door.until(401, None)
    yield door
    door.set_keys()
    door.until(200, None)
    assert replicas() == before, "keys changed without a restart"


PATHS = sorted({route.path for route in api.routes} - {"/health"})


@pytest.mark.parametrize(
    "path", [*PATHS, "/", "/nowhere", "/metrics", "/health/", "/HEALTH", "/v1/../health", "//health"]
)
def test_every_path_but_health_is_closed(door, path):
    for answer in (door.get(path), door.get(path, "wrong-key-0123456789"), door.get(f"{path}?api_key={ACME}")):
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["code"] == "invalid_api_key"
    assert door.get(path, ACME).status_code != 401
    assert door.get("/health").status_code == 200


def test_answers_carry_security_headers_and_a_request_id(door):
    for answer in (door.get(), door.get(key=ACME)):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-request-id"]


def test_a_rate_limit(door):
    assert door.get(key=CI).status_code == 200
    answer = door.get(key=CI)
    assert answer.status_code == 429
    assert 50 <= int(answer.headers["retry-after"]) <= 60
    assert door.get(key=ACME).status_code == 200


def test_tenants_share_no_cache(door):
    door.set_keys(door.key("acme", ACME), door.key("ci", CI, tenant="tests"))
    door.until(200, CI)
    question = (part(picture(77, (700, 700))), "What is this?")

    def cached(key: str) -> int:
        usage = door.ask(key, *question).json()["usage"]
        return (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0

    first, again, other = cached(ACME), cached(ACME), cached(CI)
    assert first == 0
    assert again >= 5 * 144
    assert other == 0


def test_a_trusted_key_may_send_control_tokens_to_completions(door, tessera):
    door.set_keys(door.key("acme", ACME), door.key("trusted", NEXT, trusted=True))
    door.until(200, NEXT)
    url, request = f"{tessera.url}/v1/completions", {"model": tessera.model, "prompt": "<|patch|>", "max_tokens": 4}
    refused, answer = (
        httpx.post(url, json=request, headers={"Authorization": f"Bearer {key}"}, timeout=60) for key in (ACME, NEXT)
    )
    assert refused.json()["error"]["code"] == "special_token_in_text"
    # The token alone, behind the one that begins a text: as in vLLM no picture belongs to it, and the engine lives.
    assert answer.json()["usage"]["prompt_tokens"] == 2
    assert door.ask(ACME, part(picture(78)), "What?").status_code == 200


def test_rotation_does_not_touch_a_stream_that_runs(door, tessera):
    body = {"model": tessera.model, "messages": [user("Tell me.")], "max_tokens": 300, "ignore_eos": True}
    headers = {"Authorization": f"Bearer {ACME}"}
    url = f"{tessera.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body | {"stream": True}, headers=headers, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        door.set_keys(door.key("next", NEXT))
        door.until(200, NEXT)
        assert door.get(key=ACME).status_code == 401
        events = [line for line in lines if line.startswith("data: ")]
    assert events[-1] == "data: [DONE]"
    assert not any("error" in json.loads(event.removeprefix("data: ")) for event in events[:-1])
