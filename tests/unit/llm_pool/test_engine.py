"""vLLM's internals that the adapter leans on."""

import inspect
import os

import pytest
from vllm.entrypoints.openai.chat_completion import serving as chat_serving
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.entrypoints.openai.completion import serving as completion_serving
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
from vllm.entrypoints.openai.models.serving import OpenAIServingModels
from vllm.entrypoints.openai.responses.serving import OpenAIServingResponses
from vllm.entrypoints.serve.tokenize.serving import ServingTokenization
from vllm.v1.engine.async_llm import AsyncLLM

from llm_pool import engine


def test_what_the_adapter_calls_is_still_there() -> None:
    assert list(inspect.signature(engine.init_app_state).parameters) == [
        "engine_client",
        "state",
        "args",
        "supported_tasks",
    ]
    for method in (
        OpenAIServingChat.create_chat_completion,
        OpenAIServingCompletion.create_completion,
        OpenAIServingResponses.create_responses,
        ServingTokenization.create_tokenize,
        ServingTokenization.create_detokenize,
    ):
        assert list(inspect.signature(method).parameters)[1:] == ["request", "raw_request"]
    assert {"usage_context", "stat_loggers", "enable_log_requests", "disable_log_stats"} <= set(
        inspect.signature(AsyncLLM.from_vllm_config).parameters
    )
    assert inspect.iscoroutinefunction(AsyncLLM.add_request)
    assert "self.add_request(" in inspect.getsource(AsyncLLM.generate)
    for name in ("get_supported_tasks", "check_health", "get_num_unfinished_requests", "shutdown", "collective_rpc"):
        assert callable(getattr(AsyncLLM, name))
    assert callable(OpenAIServingModels.show_available_models)


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


def test_vllms_services_log_under_the_names_that_are_filtered() -> None:
    for module in (chat_serving, completion_serving):
        assert module.logger.name == module.__name__
        assert module.__name__ in {f"vllm.entrypoints.openai.{name}.serving" for name in engine.STREAMING_SERVICES}
