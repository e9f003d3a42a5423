"""CORS over HTTP: off by default, and where the operator names an origin for that one."""

from __future__ import annotations

import httpx
import pytest

from tests.e2e.router.conftest import CORS_ORIGIN

PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


def preflight(url: str, origin: str) -> httpx.Response:
    return httpx.options(f"{url}/v1/chat/completions", headers=PREFLIGHT | {"Origin": origin})


def test_no_page_reads_answers_by_default(tessera):
    assert preflight(tessera.url, CORS_ORIGIN).status_code == 405
    answer = httpx.get(f"{tessera.url}/health", headers={"Origin": CORS_ORIGIN})
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.slow
def test_pages_of_a_named_origin_read_answers(strict):
    allowed = preflight(strict.url, CORS_ORIGIN)
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == CORS_ORIGIN
    assert "authorization" in allowed.headers["access-control-allow-headers"]
    for path, status in (("/health", 200), ("/nowhere", 404)):
        answer = httpx.get(strict.url + path, headers={"Origin": CORS_ORIGIN})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == CORS_ORIGIN


@pytest.mark.slow
def test_pages_of_others_do_not(strict):
    assert preflight(strict.url, "https://other.example").status_code == 400
    answer = httpx.get(f"{strict.url}/health", headers={"Origin": "https://other.example"})
    assert "access-control-allow-origin" not in answer.headers
