import httpx
import pytest
from fastapi import FastAPI

from router.response_headers import SECURITY_HEADERS, Cors, SecurityHeaders

PAGE = {"Origin": "https://chat.example"}


def client(*origins: str) -> httpx.AsyncClient:
    app = FastAPI()
    app.add_middleware(Cors, origins=lambda: origins)
    app.add_middleware(SecurityHeaders)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t")


async def test_every_answer_has_them():
    answer = await client().get("/nowhere")
    assert {name: answer.headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS


async def test_cors_is_off_unless_an_origin_is_named():
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    for origins, allowed in [
        ((), None),
        (("https://other.example",), None),
        (("https://chat.example",), PAGE["Origin"]),
    ]:
        one = client(*origins)
        answers = [await one.get("/x", headers=PAGE), await one.options("/x", headers=PAGE | ask)]
        assert [answer.headers.get("access-control-allow-origin") for answer in answers] == [allowed] * 2


@pytest.mark.parametrize("origins", [("*",), ("https://chat.example",)])
async def test_no_page_gets_cookies_sent_along(origins):
    answer = await client(*origins).get("/x", headers=PAGE)
    assert "access-control-allow-credentials" not in answer.headers
