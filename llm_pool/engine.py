"""A vLLM engine with its OpenAI chat service: the only file that touches vLLM's engine and serving internals.

vLLM builds the service from the same pieces for `vllm serve`, so templates, tools, structured outputs, logprobs and
streaming behave as they do there; only the HTTP server is left out.
"""

from __future__ import annotations

import logging
import os
from argparse import Namespace
from collections.abc import AsyncGenerator
from typing import Any

from pydantic import ValidationError
from starlette.datastructures import State
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest, ChatCompletionResponse
from vllm.entrypoints.serve import create_error_response
from vllm.entrypoints.serve.engine.protocol import ErrorInfo, ErrorResponse
from vllm.exceptions import GenerationError, VLLMValidationError
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.ray_wrappers import RayPrometheusStatLogger

from encoder_pool.fingerprint import fingerprint
from encoder_pool.settings import ModelSettings
from llm_pool.embeddings import EmbeddingSpec
from llm_pool.engine_args import check_frontend_kwargs, engine_args
from llm_pool.errors import error_body
from llm_pool.media_connector import CONNECTOR_NAME
from llm_pool.placement import place
from llm_pool.reply import Reply
from llm_pool.settings import LLMSettings

logger = logging.getLogger("ray.serve")

# vLLM's own 5 seconds end, on a busy machine, in a kill that leaves shared memory behind.
SHUTDOWN_S = 20.0
ERROR_EVENT = 'data: {"error":'
# vLLM's names of what is too long; a client knows neither.
_TOO_LONG = ("input_tokens", "input_text")
# Fields of a request whose value becomes a grammar.
_STRUCTURES = ("response_format", "structured_outputs", "tool_choice")
_NO_STRUCTURE = (None, {"type": "text"}, "auto", "none")


class Engine:
    """One running engine. `spec` is what it expects of an embedding."""

    def __init__(self, client: AsyncLLM, state: State, spec: EmbeddingSpec) -> None:
        self.spec = spec
        self._client = client
        self._chat = state.openai_serving_chat
        self._models = state.openai_serving_models

    @classmethod
    async def start(cls, model: ModelSettings, llm: LLMSettings) -> Engine:
        """Loads the model; takes from half a minute to many.

        `llm.gpus_per_node` must be set. Raises ValueError (arguments), CheckpointError, and what vLLM raises.
        """
        placement = place(llm)
        # vLLM reads these from the environment alone.
        os.environ["VLLM_MEDIA_CONNECTOR"] = CONNECTOR_NAME
        if llm.gpus_per_node == 0:
            use_threads(llm.cpu_threads or len(os.sched_getaffinity(0)))
        frontend = check_frontend_kwargs(llm.frontend_kwargs)
        args = engine_args(model, llm.engine_kwargs, placement.executor)
        config = args.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)
        weights = fingerprint(model)
        client = AsyncLLM.from_vllm_config(
            config,
            usage_context=UsageContext.OPENAI_API_SERVER,
            # vLLM's own metrics leave through Ray's exporter, beside ours.
            stat_loggers=None if args.disable_log_stats else [RayPrometheusStatLogger],
            enable_log_requests=args.enable_log_requests,
            disable_log_stats=args.disable_log_stats,
        )
        try:
            state = State()
            namespace = Namespace(**(vars(args) | frontend))
            await init_app_state(client, state, namespace, await client.get_supported_tasks())
            info = client.renderer.mm_processor.info
            spec = EmbeddingSpec(
                width=config.model_config.get_inputs_embeds_size(),
                tokens_per_tile=info.tokens_per_tile,
                max_grid=info.get_max_num_tiles(),
                dtype=model.dtype,
                fingerprint=weights,
            )
            return cls(client, state, spec)
        except BaseException:
            client.shutdown()
            raise

    async def chat(self, body: dict[str, Any], request_id: str) -> Reply | AsyncGenerator[str, None]:
        """Answers a chat request (vLLM's ChatCompletionRequest) whose image parts are filled.

        A Reply for a whole answer, and for everything that goes wrong before the first token. Else the events of a
        stream, from the first token on; one that fails ends with an error event instead of [DONE]. Cancelling the
        task that waits, or closing the generator, ends the request in the engine.
        """
        try:
            request = ChatCompletionRequest.model_validate(body | {"request_id": request_id})
            answer = await self._chat.create_chat_completion(request)
        except GenerationError as error:
            return _structure_refusal(body) or _refusal(error, request_id)
        except Exception as error:
            return _refusal(error, request_id)
        if isinstance(answer, ErrorResponse):
            return _error_reply(answer.error)
        if isinstance(answer, ChatCompletionResponse):
            return Reply(200, False, answer.model_dump_json())
        first = await anext(answer)
        error_reply = _error_in(first)
        if error_reply is None:
            return _events(first, answer)
        # In a stream vLLM reports its own death like any other error.
        if self._client.errored:
            return _refusal(EngineDeadError(), request_id)
        return (_structure_refusal(body) if error_reply.status == 500 else None) or error_reply

    async def models(self) -> dict[str, Any]:
        """The answer of GET /v1/models: one entry for each served name."""
        return (await self._models.show_available_models()).model_dump()

    async def check_health(self) -> None:
        """Raises EngineDeadError once the engine has died."""
        await self._client.check_health()

    def unfinished_requests(self) -> int:
        """Requests that wait or run in the engine."""
        return self._client.get_num_unfinished_requests()

    def shutdown(self) -> None:
        """Ends the engine's processes, which gives them time to remove what they shared."""
        self._client.shutdown(timeout=SHUTDOWN_S)


def use_threads(count: int) -> None:
    """Sets the threads of CPU workers that start after this; what the user set in the environment stays.

    vLLM's default binds each engine to the same cores, all but one, and Ray leaves a replica one thread.
    """
    if "VLLM_CPU_OMP_THREADS_BIND" not in os.environ:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        os.environ["OMP_NUM_THREADS"] = str(count)


async def _events(first: str, rest: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    try:
        yield first
        async for event in rest:
            error = _error_in(event)
            if error is not None:
                # vLLM goes on to [DONE], which would make a failure look like an answer.
                yield f"data: {error.body}\n\n"
                return
            yield event
    finally:
        await rest.aclose()


def _error_in(event: str) -> Reply | None:
    """The error that an event of vLLM's stream reports."""
    if not event.startswith(ERROR_EVENT):
        return None
    return _error_reply(ErrorResponse.model_validate_json(event.removeprefix("data:")).error)


def _refusal(error: Exception, request_id: str) -> Reply:
    """What vLLM raised before it began to answer; it maps most exceptions to a status itself."""
    if isinstance(error, EngineDeadError):
        dead = error_body(503, "the engine is gone", "ServiceUnavailableError", code="engine_dead")
        return Reply(503, False, dead, retryable=True)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        # vLLM's wrapping validators stand in the path too, under names that are none of the request's.
        param = next((step for step in first["loc"] if str(step).isidentifier()), None)
        return _error_reply(ErrorInfo(message=first["msg"], type="BadRequestError", param=param, code=400))
    info = create_error_response(error).error
    if isinstance(error, VLLMValidationError):
        # str(error) repeats the value that was refused.
        info.message = str(error.args[0])
    if info.code == 500:
        logger.error("request %s failed in vLLM", request_id, exc_info=error)
        info.message = "the engine failed on this request"
    return _error_reply(info)


def _structure_refusal(body: dict[str, Any]) -> Reply | None:
    """400 for a request that failed by itself in a living engine while it asked for a structure.

    vLLM compiles schemas and grammars in the engine and tells of a failure only that there was one, as 500.
    """
    for field in _STRUCTURES:
        if body.get(field) not in _NO_STRUCTURE:
            message = f"{field}: the engine cannot follow this structure"
            return _error_reply(ErrorInfo(message=message, type="BadRequestError", param=field, code=400))
    return None


def _error_reply(info: ErrorInfo) -> Reply:
    param, code = info.param, None
    if param in _TOO_LONG:
        param, code = "messages", "context_length_exceeded"
    elif param == "model" and info.code == 404:
        code = "model_not_found"
    return Reply(info.code, False, error_body(info.code, info.message, info.type, param=param, code=code))
