"""The Router's metrics as Ray exports them."""

from __future__ import annotations

import re
import time

import httpx
import pytest
import ray

from router import metrics
from tests.pictures import part, picture, user

# Counters of what does not happen in a quiet application.
RARE = ("tessera_router_retries", "tessera_router_store_evictions")
NAMES = sorted(set(re.findall(r"`(tessera_router_\w+)`", metrics.__doc__)))


def export() -> str:
    """The export of every node's agent."""
    ports = {(n["NodeManagerAddress"], n["MetricsExportPort"]) for n in ray.nodes() if n["Alive"]}
    return "".join(httpx.get(f"http://{host}:{port}/metrics", timeout=10).text for host, port in ports)


@pytest.mark.slow  # an export is up to ten seconds old
def test_every_documented_metric_is_exported(tessera):
    body = {"model": tessera.model, "messages": [user(part(picture(77)), "What?")], "max_tokens": 1}
    for _ in range(2):
        assert httpx.post(f"{tessera.url}/v1/chat/completions", json=body, timeout=60).status_code == 200
    missing = NAMES
    for _ in range(40):
        text = export()
        missing = [name for name in NAMES if name not in text and name not in RARE]
        if not missing:
            break
        time.sleep(1)
    assert missing == []
    assert 'result="hit"' in text
    assert "vllm_num_requests_running" in text, "vLLM's own metrics go the same way"
