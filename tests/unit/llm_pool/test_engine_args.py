"""vLLM's arguments as a user may write them in the configuration, and as the engine gets them."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from vllm.config import CompilationConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import BaseFrontendArgs, FrontendArgs
from vllm.renderers.chat_utils import load_chat_template

from encoder_pool.settings import ModelSettings
from llm_pool.chat_template import CHAT_TEMPLATE
from llm_pool.engine_args import (
    OWNED_ENGINE_KWARGS,
    OWNED_FRONTEND_KWARGS,
    check_engine_kwargs,
    check_frontend_kwargs,
    engine_args,
)
from llm_pool.placement import PARALLEL_SIZES
from llm_pool.plugin import ARCHITECTURE


def test_every_name_that_we_know_is_still_one_of_vllms() -> None:
    engine = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
    assert OWNED_ENGINE_KWARGS.keys() <= engine
    assert set(PARALLEL_SIZES) <= engine
    assert OWNED_FRONTEND_KWARGS.keys() <= {field.name for field in dataclasses.fields(FrontendArgs)}


def test_values_take_vllms_own_types() -> None:
    checked = check_engine_kwargs({"max_model_len": "4096", "compilation_config": {"mode": 0}, "kv_cache_dtype": "fp8"})
    assert checked["max_model_len"] == 4096
    assert isinstance(checked["compilation_config"], CompilationConfig)
    assert checked["kv_cache_dtype"] == "fp8"
    assert check_engine_kwargs({}) == {}


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"max_model_length": 1}, "max_model_length: .*did you mean max_model_len"),
        ({"zzz": 1}, "zzz: vLLM has no such argument"),
        ({"_api_process_count": 2}, "no such argument"),
        ({"max_num_seqs": "many"}, "max_num_seqs: .*integer"),
        ({"compilation_config": {"modus": 1}}, "compilation_config: modus"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size: must be at least 1"),
        ({"max_model_len": -5}, "max_model_len: must be at least 1"),
        ({"max_num_seqs": 0}, "max_num_seqs: must be at least 1"),
        ({"reasoning_parser": "deepseek_r2"}, "reasoning_parser: .*did you mean deepseek_r1"),
        *(({name: 1}, f"{name}: not to be set here") for name in OWNED_ENGINE_KWARGS),
    ],
)
def test_wrong_engine_arguments_are_refused_by_name(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_engine_kwargs(kwargs)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"chat_templat": "x"}, "chat_templat: .*did you mean chat_template"),
        # Options of vLLM's own HTTP server, which is not used.
        ({"port": 1}, "port: vLLM has no such argument"),
        ({"api_key": ["x"]}, "api_key: not to be set here: it would protect nothing"),
        ({"allowed_origins": ["x"]}, "allowed_origins: vLLM has no such argument"),
        ({"response_role": 3}, "response_role: .*string"),
        ({"chat_template": "/no/such/file"}, "chat_template: "),
        ({"enable_auto_tool_choice": True}, "needs a tool_call_parser"),
        ({"tool_call_parser": "llama4_json"}, "without enable_auto_tool_choice"),
        ({"enable_auto_tool_choice": True, "tool_call_parser": "llama4_jsn"}, "did you mean llama4_json"),
        *(({name: 1}, f"{name}: not to be set here") for name in OWNED_FRONTEND_KWARGS),
    ],
)
def test_wrong_serving_options_are_refused_by_name(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_frontend_kwargs(kwargs)


def test_serving_options_are_completed_by_vllms_defaults() -> None:
    checked = check_frontend_kwargs({"enable_auto_tool_choice": True, "tool_call_parser": "llama4_pythonic"})
    assert checked["tool_call_parser"] == "llama4_pythonic"
    assert checked["response_role"] == "assistant"
    assert checked.keys() == {field.name for field in dataclasses.fields(BaseFrontendArgs)}


def test_the_chat_template_of_ours_is_named() -> None:
    checked = check_frontend_kwargs({"chat_template": "lossless"})
    assert checked["chat_template"] == str(CHAT_TEMPLATE)
    assert load_chat_template(checked["chat_template"]) == CHAT_TEMPLATE.read_text()


def test_the_engine_gets_the_users_arguments_and_ours(tmp_path: Path) -> None:
    model = ModelSettings(source=str(tmp_path), revision="main", served_names=("a", "b"), dtype="float32", seed=3)
    args = engine_args(model, {"max_num_seqs": 7}, "mp")
    assert args.max_num_seqs == 7
    assert args.model == str(tmp_path)
    assert args.served_model_name == ["a", "b"]
    assert (args.dtype, args.revision, args.seed, args.load_format) == ("float32", "main", 3, "auto")
    assert args.distributed_executor_backend == "mp"
    assert args.hf_overrides == {"architectures": [ARCHITECTURE]}
    assert args.limit_mm_per_prompt == {"image": 0}
    assert args.enable_mm_embeds is True
    assert args.mm_processor_cache_gb == 0
