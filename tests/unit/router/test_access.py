"""The middleware around a small application, over ASGI."""

import asyncio

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from router.access import Access, AccessControl, caller_of
from router.live_settings import ApiKeySettings

KEY = "acme-key-0123456789"
BEARER = {"Authorization": f"Bearer {KEY}"}


def build(access: Access) -> FastAPI:
    app = FastAPI()
    app.add_middleware(AccessControl, access=lambda: access)

    @app.get("/health")
    async def health() -> dict:
        return {}

    @app.api_route("/who", methods=["GET", "POST"])
    async def who(request: Request) -> dict:
        caller = caller_of(request)
        return {"name": caller.name, "tenant": caller.tenant, "trusted": caller.trusted}

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def chunks():
            yield "x"
            await asyncio.sleep(0.2)

        return StreamingResponse(chunks())

    return app


@pytest.fixture
async def access():
    return Access()


@pytest.fixture
async def client(access):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(build(access)), base_url="http://t") as made:
        yield made


@pytest.fixture
def configure(access, monkeypatch):
    monkeypatch.setenv("ACME", KEY)

    def configure(**more):
        access.configure([ApiKeySettings(name="acme-1", env="ACME", **more)])

    return configure


async def test_without_keys_everyone_is_one_tenant(client, access):
    access.configure(None)
    assert (await client.get("/who")).json() == {"name": "", "tenant": "", "trusted": False}


async def test_a_key_says_who_asks(client, configure):
    configure()
    answer = await client.get("/who", headers=BEARER)
    assert answer.json() == {"name": "acme-1", "tenant": "acme-1", "trusted": False}
    configure(tenant="acme", trusted=True)
    answer = await client.get("/who", headers=BEARER)
    assert answer.json() == {"name": "acme-1", "tenant": "acme", "trusted": True}


@pytest.mark.parametrize(
    "path", ["/who", "/openapi.json", "/docs", "/nowhere", "/", "/health/", "/health/x", "//health"]
)
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"X-Api-Key": KEY}])
async def test_every_path_but_health_is_closed(client, configure, path, headers):
    configure()
    for method in ("GET", "POST", "OPTIONS", "DELETE"):
        answer = await client.request(method, path, headers=headers, params={"api_key": KEY})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert KEY not in answer.text


async def test_health_is_open(client, configure):
    configure()
    assert (await client.get("/health")).status_code == 200


async def test_a_streams_place_is_taken_until_its_end(client, configure):
    configure(max_concurrent_requests=1)
    first = asyncio.create_task(client.get("/stream", headers=BEARER))
    await asyncio.sleep(0.05)
    answer = await client.get("/who", headers=BEARER)
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["type"] == "RateLimitError"
    assert (await first).status_code == 200
    assert (await client.get("/who", headers=BEARER)).status_code == 200
