"""A vLLM engine with its OpenAI services: the only file that touches vLLM's engine and serving internals.

vLLM builds the services from the same pieces for `vllm serve`, so templates, tools, structured outputs, logprobs and
streaming behave as they do there; only the HTTP server is left out.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from argparse import Namespace
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from pydantic import BaseModel
from starlette.datastructures import State
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.ray_wrappers import RayPrometheusStatLogger

from encoder_pool.fingerprint import fingerprint
from encoder_pool.settings import ModelSettings
from encoder_pool.wire import HandOff
from llm_pool.cpu_memory import EXTENSION, WorkerTrimmer, bound_memory
from llm_pool.embeddings import EmbeddingSpec
from llm_pool.engine_args import check_frontend_kwargs, engine_args
from llm_pool.errors import RefusedError, error_event
from llm_pool.image_parts import fill, vllm_parts
from llm_pool.logs import keep_targets
from llm_pool.metrics import DecoderMetrics
from llm_pool.placement import place
from llm_pool.protocol import request_model
from llm_pool.refusals import NoClientErrors, refusal, reply_of
from llm_pool.reply import Endpoint, Reply
from llm_pool.settings import LLMSettings
from llm_pool.stand_ins import CONNECTOR_NAME, put_values
from llm_pool.streams import texts, until_first_token

# vLLM's own 5 seconds end, on a busy machine, in a kill that leaves shared memory behind.
SHUTDOWN_S = 20.0
# Those that catch and log what goes wrong in a stream.
STREAMING_SERVICES = ("chat_completion", "completion")


@dataclass(slots=True)
class _Intake:
    """When a request came, and when vLLM had handed it to the engine's process; as of `time.time_ns()`.

    values: the embeddings of its images; refused: what was wrong with them, which vLLM reports as any other failure.
    """

    came_ns: int
    values: asyncio.Future[list[torch.Tensor]] | None
    taken_ns: int = 0
    refused: RefusedError | None = None


_INTAKE: ContextVar[_Intake | None] = ContextVar("intake", default=None)


class _Client(AsyncLLM):
    """vLLM's client, which waits for a request's embeddings when all else is done, and notes when it is taken in."""

    async def add_request(self, request_id: str, prompt: Any, *args: Any, **kwargs: Any) -> Any:
        intake = _INTAKE.get()
        if intake is not None and intake.values is not None:
            try:
                put_values(prompt, await intake.values)
            except RefusedError as error:
                intake.refused = error
                raise
        queue = await super().add_request(request_id, prompt, *args, **kwargs)
        if intake is not None:
            intake.taken_ns = time.time_ns()
        return queue


class Engine:
    """One running engine. `spec` is what it expects of an embedding."""

    def __init__(
        self, client: AsyncLLM, state: State, spec: EmbeddingSpec, trimmer: WorkerTrimmer | None = None
    ) -> None:
        self.spec = spec
        self.metrics = DecoderMetrics()
        self._client = client
        self._trimmer = trimmer
        tokenization = state.serving_tokenization
        self._services: dict[Endpoint, Callable[[Any], Awaitable[Any]]] = {
            "chat": state.openai_serving_chat.create_chat_completion,
            "completions": state.openai_serving_completion.create_completion,
            "responses": state.openai_serving_responses.create_responses,
            "tokenize": partial(tokenization.create_tokenize, raw_request=None),
            "detokenize": partial(tokenization.create_detokenize, raw_request=None),
        }
        self._models = state.openai_serving_models

    @classmethod
    async def start(cls, model: ModelSettings, llm: LLMSettings) -> Engine:
        """Loads the model; takes from half a minute to many.

        `llm.gpus_per_node` must be set. Raises ValueError (arguments), CheckpointError, and what vLLM raises.
        """
        for service in STREAMING_SERVICES:
            logging.getLogger(f"vllm.entrypoints.openai.{service}.serving").addFilter(NoClientErrors())
        placement = place(llm)
        # vLLM reads these from the environment alone.
        os.environ["VLLM_MEDIA_CONNECTOR"] = CONNECTOR_NAME
        # Its store is without a limit, and would hold what stood for embeddings.
        os.environ["VLLM_ENABLE_RESPONSES_API_STORE"] = "0"
        if llm.gpus_per_node == 0:
            use_threads(llm.cpu_threads or len(os.sched_getaffinity(0)))
            bound_memory()
        frontend = check_frontend_kwargs(llm.frontend_kwargs)
        args = engine_args(model, llm.engine_kwargs, placement.executor)
        trims_workers = llm.gpus_per_node == 0 and not args.worker_extension_cls
        if trims_workers:
            args.worker_extension_cls = EXTENSION
        weights = fingerprint(model)
        with keep_targets(logging.getLogger("ray.serve")):
            config = args.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)
            client = _Client.from_vllm_config(
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
            return cls(client, state, spec, WorkerTrimmer(client) if trims_workers else None)
        except BaseException:
            client.shutdown()
            raise

    async def answer(
        self,
        endpoint: Endpoint,
        body: dict[str, Any],
        request_id: str,
        hand_off: HandOff | None = None,
        values: asyncio.Future[list[torch.Tensor]] | None = None,
    ) -> Reply | AsyncGenerator[str, None]:
        """Answers a request of `endpoint`, in whose body placeholders stand for the images (see image_parts.py).

        values: the images' embeddings (see embeddings.py), awaited once vLLM has made its prompt.
        A Reply for a whole answer, and for everything that goes wrong before the first token. Else the events of a
        stream, from the first token on; one that fails ends with an error event instead of [DONE]. Cancelling the
        task that waits, or closing the generator, ends the request in the engine. Raises EmbeddingError, and the
        RefusedError that `values` raises.
        """
        intake = _Intake(time.time_ns(), values)
        _INTAKE.set(intake)
        parts = [] if hand_off is None else vllm_parts(hand_off.images, self.spec)
        try:
            answer = await self._services[endpoint](_request(endpoint, body, request_id, parts))
            if isinstance(answer, ErrorResponse):
                if intake.refused is not None:
                    raise intake.refused
                return reply_of(answer.error, endpoint, body)
            if isinstance(answer, BaseModel):
                self._measure(intake, "answer")
                return Reply(200, False, answer.model_dump_json(by_alias=True))
            events = texts(answer)
            first = await until_first_token(events)
            self._measure(intake, "prefill")
        except RefusedError:
            raise
        except Exception as error:
            if intake.refused is not None:
                raise intake.refused from None
            # In a stream vLLM reports its own death like any other error.
            cause = EngineDeadError() if self._client.errored else error
            return refusal(cause, endpoint, body, request_id, in_engine=bool(intake.taken_ns))
        return self._going_on(first, events, endpoint, body, request_id)

    def _measure(self, intake: _Intake, last: Literal["answer", "prefill"]) -> None:
        if intake.taken_ns:  # what needs no engine, tokenizing, is not taken in
            self.metrics.stage("intake", intake.came_ns, intake.taken_ns)
            self.metrics.stage(last, intake.taken_ns)

    async def _going_on(
        self, first: str, rest: AsyncGenerator[str, None], endpoint: Endpoint, body: dict[str, Any], request_id: str
    ) -> AsyncGenerator[str, None]:
        async with aclosing(rest):
            try:
                yield first
                async for text in rest:
                    yield text
            except Exception as error:
                yield error_event(refusal(error, endpoint, body, request_id).body, endpoint)

    async def models(self) -> dict[str, Any]:
        """The answer of GET /v1/models: one entry for each served name."""
        return (await self._models.show_available_models()).model_dump()

    async def check_health(self) -> None:
        """Raises EngineDeadError once the engine has died."""
        await self._client.check_health()

    def unfinished_requests(self) -> int:
        """Requests that wait or run in the engine."""
        return self._client.get_num_unfinished_requests()

    def trim_workers(self) -> None:
        """Lets workers on CPUs give back the memory that they do not use."""
        if self._trimmer is not None:
            self._trimmer.trim()

    def shutdown(self) -> None:
        """Ends the engine's processes, which gives them time to remove what they shared."""
        if self._trimmer is not None:
            self._trimmer.stop()
        self._client.shutdown(timeout=SHUTDOWN_S)


def use_threads(count: int) -> None:
    """Sets the threads of CPU workers that start after this; what the user set in the environment stays.

    vLLM's default binds each engine to the same cores, all but one, and Ray leaves a replica one thread.
    """
    if "VLLM_CPU_OMP_THREADS_BIND" not in os.environ:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        os.environ["OMP_NUM_THREADS"] = str(count)


def _request(endpoint: Endpoint, body: dict[str, Any], request_id: str, parts: list[dict[str, Any]]) -> Any:
    """vLLM's request with its image parts filled. Raises EmbeddingError, and what vLLM's models raise."""
    model = request_model(endpoint, body)
    if endpoint == "responses":
        request: Any = model.model_validate(body | {"request_id": f"resp_{request_id}"})
        # Embeddings are refused before the validation, and taken after it.
        fill(request.input, parts)
        return request
    fill(body.get("messages"), parts)
    return model.model_validate(body | {"request_id": request_id})
