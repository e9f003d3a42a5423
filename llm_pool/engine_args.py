"""The two maps of vLLM arguments in `config.yaml`, held against vLLM's own fields before an engine is started.

Knows which arguments are not a user's to set, what `vllm serve` checks before it starts, and what Tessera itself sets.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import BaseFrontendArgs
from vllm.reasoning import ReasoningParserManager
from vllm.renderers.chat_utils import validate_chat_template
from vllm.tool_parsers import ToolParserManager

from encoder_pool.settings import ModelSettings
from llm_pool.chat_template import CHAT_TEMPLATE, LOSSLESS
from llm_pool.placement import PARALLEL_SIZES
from llm_pool.plugin import ARCHITECTURE

_BY_MODEL = "both pools load one model; set it under `model`"
_BY_DESIGN = "Tessera sets it, since images arrive as embeddings"
_BY_ROUTER = "pictures are cut and encoded before they reach vLLM"
_BY_REPLICAS = "replicas are Ray Serve's; set `llm.replicas`"
_NO_ADAPTERS = "adapters are not served: requests name the model itself"
_BY_PLACEMENT = "derived from the parallel sizes and `llm.gpus_per_node`"

# Engine argument -> why it is refused in `llm.engine_kwargs`.
OWNED_ENGINE_KWARGS: dict[str, str] = {
    "model": _BY_MODEL,
    "revision": _BY_MODEL,
    "tokenizer": _BY_MODEL,
    "tokenizer_revision": _BY_MODEL,
    "hf_config_path": _BY_MODEL,
    "dtype": _BY_MODEL,
    "load_format": _BY_MODEL,
    "seed": _BY_MODEL,
    "served_model_name": _BY_MODEL,
    "hf_overrides": _BY_DESIGN,
    "enable_mm_embeds": _BY_DESIGN,
    "limit_mm_per_prompt": _BY_DESIGN,
    "mm_processor_cache_gb": _BY_DESIGN,
    "language_model_only": _BY_DESIGN,
    "enable_prompt_embeds": "nothing would check such embeddings, and a wrong one ends the engine",
    "skip_tokenizer_init": "chat needs the tokenizer",
    "mm_processor_kwargs": _BY_ROUTER,
    "mm_encoder_only": _BY_ROUTER,
    "mm_encoder_tp_mode": _BY_ROUTER,
    "distributed_executor_backend": _BY_PLACEMENT,
    "nnodes": _BY_PLACEMENT,
    "node_rank": _BY_PLACEMENT,
    "data_parallel_size": _BY_REPLICAS,
    "data_parallel_size_local": _BY_REPLICAS,
    "data_parallel_rank": _BY_REPLICAS,
    "data_parallel_backend": _BY_REPLICAS,
    "data_parallel_start_rank": _BY_REPLICAS,
    "data_parallel_address": _BY_REPLICAS,
    "data_parallel_rpc_port": _BY_REPLICAS,
    "data_parallel_hybrid_lb": _BY_REPLICAS,
    "data_parallel_external_lb": _BY_REPLICAS,
    "data_parallel_multi_port_external_lb": _BY_REPLICAS,
    "enable_lora": _NO_ADAPTERS,
    "default_mm_loras": _NO_ADAPTERS,
    "enable_sleep_mode": "nothing here would wake the engine; stop replicas instead",
}

# Numbers that vLLM checks only when it has begun to load; -1 for max_model_len is as long as fits.
SIZES = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_memory_bytes")

_BY_SERVER = "vLLM's own HTTP server is not used"

# Serving option -> why it is refused in `llm.frontend_kwargs`.
OWNED_FRONTEND_KWARGS: dict[str, str] = {
    "api_key": "it would protect nothing; keys are named in the Router's `user_config`",
    "sse_keep_alive_interval": _BY_SERVER,
    "enable_server_load_tracking": _BY_SERVER,
    "enable_tokenizer_info_endpoint": _BY_SERVER,
    "enable_scale_out": _BY_SERVER,
    "tokens_only": _BY_SERVER,
    "trust_request_mm_kwargs": _BY_ROUTER,
    "lora_modules": _NO_ADAPTERS,
}


def check_engine_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """`llm.engine_kwargs` with every value as vLLM's own type (a map given for a config class becomes one).

    Raises ValueError: an unknown key (the nearest right one is named), one of OWNED_ENGINE_KWARGS, a value of the
    wrong type, or the name of a reasoning parser that does not exist.
    """
    # Those with an underscore are set by vLLM itself.
    fields = {field.name: field.type for field in dataclasses.fields(AsyncEngineArgs) if field.name[0] != "_"}
    _check_keys(kwargs, fields, OWNED_ENGINE_KWARGS)
    checked = {name: _parse(name, value, fields[name]) for name, value in kwargs.items()}
    for name in (*PARALLEL_SIZES, *SIZES):
        value = checked.get(name)
        if value is not None and value < 1 and (name, value) != ("max_model_len", -1):
            raise ValueError(f"{name}: must be at least 1 (got {value})")
    plugin = checked.get("reasoning_parser_plugin")
    if plugin:
        ReasoningParserManager.import_reasoning_parser(plugin)
    _check_parser("reasoning_parser", checked, ReasoningParserManager.list_registered())
    return checked


def check_frontend_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """`llm.frontend_kwargs`, completed by vLLM's defaults; the chat template `lossless` is Tessera's own.

    Raises ValueError: an unknown key (the nearest right one is named), one of OWNED_FRONTEND_KWARGS, a value of the
    wrong type, a chat template that is not there, and what `vllm serve` refuses: the flag `enable_auto_tool_choice`
    without a `tool_call_parser`, or the name of a parser that does not exist.
    """
    _check_keys(kwargs, (field.name for field in dataclasses.fields(BaseFrontendArgs)), OWNED_FRONTEND_KWARGS)
    try:
        args = vars(BaseFrontendArgs(**kwargs))
    except ValidationError as error:
        raise ValueError(_first(error)) from None
    if args["tool_parser_plugin"]:
        ToolParserManager.import_tool_parser(args["tool_parser_plugin"])
    _check_parser("tool_call_parser", args, ToolParserManager.list_registered())
    if args["enable_auto_tool_choice"] and not args["tool_call_parser"]:
        raise ValueError("enable_auto_tool_choice: needs a tool_call_parser")
    if args["tool_call_parser"] and not args["enable_auto_tool_choice"]:
        raise ValueError("tool_call_parser: has no effect without enable_auto_tool_choice")
    if args["chat_template"] == LOSSLESS:
        args["chat_template"] = str(CHAT_TEMPLATE)
    try:
        validate_chat_template(args["chat_template"])
    except Exception as error:
        raise ValueError(f"chat_template: {error}") from None
    return args


def engine_args(model: ModelSettings, engine_kwargs: Mapping[str, Any], executor: str) -> AsyncEngineArgs:
    """vLLM's arguments of one engine: the user's, checked, and those that Tessera owns. Raises ValueError."""
    return AsyncEngineArgs(
        **check_engine_kwargs(engine_kwargs),
        model=model.source,
        revision=model.revision,
        served_model_name=list(model.names),
        dtype=model.dtype,
        load_format=model.load_format,
        seed=model.seed,
        hf_overrides={"architectures": [ARCHITECTURE]},
        enable_mm_embeds=True,
        # No image of its own: the vision tower is neither built nor loaded. Embeddings do not count.
        limit_mm_per_prompt={"image": 0},
        # It would keep a second copy of every embedding.
        mm_processor_cache_gb=0,
        distributed_executor_backend=executor,
    )


def _check_keys(kwargs: Mapping[str, Any], known: Any, owned: Mapping[str, str]) -> None:
    known = set(known)
    for key in kwargs:
        if key in owned:
            raise ValueError(f"{key}: not to be set here: {owned[key]}")
        if key not in known:
            close = difflib.get_close_matches(key, known - owned.keys(), n=1)
            raise ValueError(f"{key}: vLLM has no such argument" + (f"; did you mean {close[0]}?" if close else ""))


def _parse(name: str, value: Any, annotation: Any) -> Any:
    # vLLM leaves a few annotations as text, or names classes that pydantic cannot check: those it checks itself.
    if value is None or isinstance(annotation, str):
        return value
    try:
        return TypeAdapter(annotation).validate_python(value)
    except PydanticSchemaGenerationError:
        return value
    except ValidationError as error:
        raise ValueError(f"{name}: {_first(error)}") from None


def _check_parser(key: str, args: Mapping[str, Any], known: list[str]) -> None:
    name = args.get(key)
    if name and name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"vLLM has {', '.join(sorted(known))}"
        raise ValueError(f"{key}: no parser is called {name!r}; {hint}")


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(step) for step in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]
