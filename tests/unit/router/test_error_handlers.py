import pytest
from fastapi import FastAPI
from ray.serve.exceptions import RequestCancelledError
from starlette.testclient import TestClient

from router.error_handlers import answer_errors
from router.errors import unavailable


@pytest.fixture(scope="module")
def client():
    api = FastAPI()
    answer_errors(api)

    @api.get("/later")
    def later():
        raise unavailable("not yet", "starting", retry_after_s=5)

    @api.get("/broken")
    def broken():
        raise KeyError("secret")

    @api.get("/left")
    def left():
        raise RequestCancelledError("id")

    return TestClient(api, raise_server_exceptions=False)


def test_a_refusal_keeps_its_status_code_and_headers(client):
    answer = client.get("/later")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "starting")
    assert answer.headers["retry-after"] == "5"


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/later", 405), ("GET", "/nowhere", 404)])
def test_what_is_not_routed(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_client_that_left_is_no_fault(client, caplog):
    assert client.get("/left").status_code == 499
    assert caplog.records == []


def test_a_fault_of_ours_tells_nothing(client):
    answer = client.get("/broken")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.json()["error"]["message"] == "internal error"
