"""What is made of vLLM's errors."""

import json
import logging
from typing import Any

import pytest
from vllm.entrypoints.serve.engine.protocol import ErrorInfo
from vllm.exceptions import GenerationError, VLLMValidationError
from vllm.v1.engine.exceptions import EngineDeadError

from llm_pool.refusals import NoClientErrors, refusal
from llm_pool.reply import Endpoint
from llm_pool.streams import StreamError


def error_of(error: Exception, body: dict[str, Any] | None = None, endpoint: Endpoint = "chat") -> dict[str, Any]:
    reply = refusal(error, endpoint, body or {}, "id")
    found = json.loads(reply.body)["error"]
    assert found.keys() == {"message", "type", "param", "code"}
    return {"status": reply.status, **found}


def test_the_value_that_was_refused_is_not_repeated() -> None:
    error = error_of(VLLMValidationError("too hot", parameter="temperature", value="the client's"))
    assert error == {
        "status": 400,
        "message": "too hot",
        "type": "BadRequestError",
        "param": "temperature",
        "code": 400,
    }


def test_what_vllm_cannot_make_a_prompt_of_is_the_requests_fault(caplog: pytest.LogCaptureFixture) -> None:
    reply = refusal(KeyError("what the client wrote"), "responses", {"input": []}, "id", in_engine=False)
    assert (reply.status, json.loads(reply.body)["error"]["param"]) == (400, "input")
    assert "client" not in caplog.text + reply.body
    assert refusal(KeyError("x"), "responses", {"input": []}, "id", in_engine=True).status == 500


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (EngineDeadError(), 503, "engine_dead"),
        (ValueError("no"), 400, 400),
        (NotImplementedError("no"), 501, 501),
        (RuntimeError("the client's words"), 500, 500),
        (VLLMValidationError("long", parameter="input_tokens"), 400, "context_length_exceeded"),
        (StreamError(ErrorInfo(message="no", type="NotFoundError", param="model", code=404)), 404, "model_not_found"),
    ],
)
def test_statuses(error: Exception, status: int, code: int | str) -> None:
    found = error_of(error)
    assert (found["status"], found["code"]) == (status, code)
    assert "the client's words" not in found["message"]


@pytest.mark.parametrize(
    ("endpoint", "param"), [("chat", "messages"), ("completions", "prompt"), ("responses", "input")]
)
def test_what_is_too_long_has_the_clients_name(endpoint: Endpoint, param: str) -> None:
    assert error_of(VLLMValidationError("long", parameter="input_text"), endpoint=endpoint)["param"] == param


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": {"type": "json_schema"}, "tool_choice": "auto"}, "response_format"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema"}}}, "text"),
    ],
)
def test_a_structure_that_the_engine_cannot_follow_is_the_requests_fault(body: dict[str, Any], param: str) -> None:
    for error in (GenerationError(), StreamError(ErrorInfo(message="x", type="InternalServerError", code=500))):
        found = error_of(error, body)
        assert (found["status"], found["param"]) == (400, param)


@pytest.mark.parametrize("body", [{}, {"response_format": {"type": "text"}, "tool_choice": "none"}])
def test_without_a_structure_a_failure_is_the_engines(body: dict[str, Any]) -> None:
    assert error_of(GenerationError(), body)["status"] == 500


@pytest.mark.parametrize(
    ("message", "body", "param"),
    [
        ("top_k must be 0 (disable), or at least 1, got -5.", {"model": "m", "top_k": -5}, "top_k"),
        ("stop cannot contain an empty string.", {"stop": ""}, "stop"),
        ("You can only use one kind of structured outputs", {"structured_outputs": {}}, "structured_outputs"),
        ("Invalid grammar specification.", {"response_format": {"type": "json_schema"}}, "response_format"),
        ('"auto" tool_choice requires a parser', {"tools": [{"type": "function"}]}, "tools"),
        ("Invalid input for the model.", {"model": "m", "input": "x", "messages": []}, None),
    ],
)
def test_the_field_that_a_message_names_is_the_param(message: str, body: dict[str, Any], param: str | None) -> None:
    assert error_of(ValueError(message), body)["param"] == param


@pytest.mark.parametrize(
    "message",
    [
        '"auto" tool_choice requires --enable-auto-tool-choice',
        "for more set VLLM_MAX_N to that, or no tool_choice",
    ],
)
def test_a_client_is_not_told_the_servers_options(message: str) -> None:
    error = error_of(ValueError(message), {"tool_choice": "auto"})
    assert (error["message"], error["param"]) == ("tool_choice: not enabled on this server", "tool_choice")


def test_tracebacks_of_a_clients_faults_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("test.refusals")
    logger.addFilter(NoClientErrors())
    for error in (ValueError("the client's schema"), RuntimeError("ours")):
        try:
            raise error
        except Exception:
            logger.exception("Error in chat completion stream generator.")
    assert [record.exc_info[1].args[0] for record in caplog.records if record.exc_info] == ["ours"]
