"""vLLM's internals that the adapter leans on, and what it makes of vLLM's errors."""

import inspect
import json
import os

import pytest
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.entrypoints.openai.models.serving import OpenAIServingModels
from vllm.exceptions import VLLMValidationError
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from llm_pool import engine


def test_what_the_adapter_calls_is_still_there() -> None:
    assert list(inspect.signature(engine.init_app_state).parameters) == [
        "engine_client",
        "state",
        "args",
        "supported_tasks",
    ]
    assert list(inspect.signature(OpenAIServingChat.create_chat_completion).parameters)[1] == "request"
    assert {"usage_context", "stat_loggers", "enable_log_requests", "disable_log_stats"} <= set(
        inspect.signature(AsyncLLM.from_vllm_config).parameters
    )
    for name in ("get_supported_tasks", "check_health", "get_num_unfinished_requests", "shutdown"):
        assert callable(getattr(AsyncLLM, name))
    assert callable(OpenAIServingModels.show_available_models)


def test_the_value_that_was_refused_is_not_repeated() -> None:
    error = VLLMValidationError("too hot", parameter="temperature", value="the client's")
    reply = engine._refusal(error, "id")
    assert reply.status == 400
    assert json.loads(reply.body)["error"] == {
        "message": "too hot",
        "type": "BadRequestError",
        "param": "temperature",
        "code": 400,
    }


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (EngineDeadError(), 503, "engine_dead"),
        (ValueError("no"), 400, 400),
        (NotImplementedError("no"), 501, 501),
        (RuntimeError("the client's words"), 500, 500),
        (VLLMValidationError("long", parameter="input_tokens"), 400, "context_length_exceeded"),
    ],
)
def test_statuses(error: Exception, status: int, code: int | str) -> None:
    reply = engine._refusal(error, "id")
    body = json.loads(reply.body)["error"]
    assert (reply.status, body["code"]) == (status, code)
    assert "the client's words" not in reply.body


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": {"type": "json_schema"}, "tool_choice": "auto"}, "response_format"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
def test_a_structure_that_the_engine_cannot_follow_is_the_requests_fault(body, param) -> None:
    reply = engine._structure_refusal(body)
    assert reply is not None
    assert (reply.status, json.loads(reply.body)["error"]["param"]) == (400, param)


@pytest.mark.parametrize("body", [{}, {"response_format": {"type": "text"}, "tool_choice": "none"}])
def test_without_a_structure_a_failure_is_the_engines(body) -> None:
    assert engine._structure_refusal(body) is None


async def test_an_error_inside_a_stream_ends_it_without_done() -> None:
    event = 'data: {"error": {"message": "broken", "type": "InternalServerError", "param": null, "code": 500}}\n\n'

    async def rest():
        yield "data: {}\n\n"
        yield event
        yield "data: [DONE]\n\n"

    events = [text async for text in engine._events("data: {}\n\n", rest())]
    assert events[:2] == ["data: {}\n\n"] * 2
    assert len(events) == 3
    assert json.loads(events[2].removeprefix("data: "))["error"]["message"] == "broken"


def test_the_users_own_thread_binding_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0-3")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    engine.use_threads(7)
    assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == "0-3"
    assert os.environ["OMP_NUM_THREADS"] == "1"
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND")
    engine.use_threads(7)
    assert os.environ.pop("VLLM_CPU_OMP_THREADS_BIND") == "nobind"
    assert os.environ["OMP_NUM_THREADS"] == "7"
