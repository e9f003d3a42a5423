import json
import pickle

import pytest
from pydantic import BaseModel, ValidationError

from router.errors import ApiError, bad_request, from_validation, path_of, unavailable


def test_the_body_has_openais_shape():
    error = json.loads(bad_request("too odd", "messages[0]", "odd").body())
    assert error == {"error": {"message": "too odd", "type": "BadRequestError", "param": "messages[0]", "code": "odd"}}


def test_without_a_code_the_status_stands_in():
    assert json.loads(ApiError(404, "gone").body())["error"]["code"] == 404


def test_a_refusal_for_now_says_when_to_come_back():
    assert unavailable("later", "starting", retry_after_s=7).headers() == {"Retry-After": "7"}
    assert bad_request("never", None).headers() == {}


def test_an_error_survives_the_way_between_processes():
    sent = ApiError(429, "full", param="messages", code="memory_full", retry_after_s=2)
    came = pickle.loads(pickle.dumps(sent))
    assert (came.body(), came.status, came.headers(), str(came)) == (sent.body(), 429, {"Retry-After": "2"}, "full")


@pytest.mark.parametrize(
    ("location", "path"),
    [(("messages", 0, "content", 1), "messages[0].content[1]"), (("n",), "n"), ((), "")],
)
def test_path_of(location, path):
    assert path_of(location) == path


class Inner(BaseModel):
    a: int


class Other(BaseModel):
    b: int


class Outer(BaseModel):
    items: list[Inner | Other] | None = None
    stop: str | list[str] | None = None
    options: Inner | None = None
    n: int = 1


def refused(body) -> ApiError:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(body)
    error = from_validation(caught.value, body)
    assert error.status == 400
    return error


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": [{"a": 1}, {"a": "secret"}]}, "items[1].a"),
        ({"items": [{"b": "x"}]}, "items[0].b"),
        ({"items": [7]}, "items[0]"),
        ({"stop": 7}, "stop"),
        ({"stop": ["x", 7]}, "stop[1]"),
        ({"options": {}}, "options.a"),
        ({"stop": ["x", 7], "n": "many"}, "stop[1]"),
        ([], None),
    ],
)
def test_validation_names_the_field_in_the_clients_terms(body, param):
    error = refused(body)
    assert error.param == param
    assert "secret" not in error.message
    assert not any(name in error.message for name in ("Inner", "Other", "Outer"))
