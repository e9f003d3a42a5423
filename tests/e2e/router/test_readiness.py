"""What the world is told while an application starts."""

import httpx


def test_while_the_pools_load_health_says_what_is_missing(tessera):
    ours = [answer for answer in tessera.starting if answer.status_code == 503]
    assert ours, "the Router answers while the pools still load"
    for answer in ours:
        error = answer.json()["error"]
        assert error["code"] == "starting"
        assert error["message"].startswith("starting: waiting for")
        assert answer.headers["retry-after"]
    assert any("LLMPool" in answer.text for answer in ours)


def test_then_it_is_ready(tessera):
    assert httpx.get(f"{tessera.url}/health").json() == {"status": "ok"}
