"""The HTTP endpoints of the Router: OpenAI's, vLLM's own beside them, health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from importlib import metadata
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ReplicaRank

from encoder_pool.heaps import HeapTrimmer
from llm_pool.protocol import vllm_version
from llm_pool.reply import Endpoint
from router import handoff
from router.access import Access, AccessControl, caller_of
from router.config import AppConfig
from router.decoders import Answer
from router.error_handlers import answer_errors
from router.errors import ApiError, unavailable
from router.heartbeat import KeptOpen, within
from router.image_source import ImageSource
from router.live_settings import live_settings
from router.metrics import RouterMetrics
from router.openapi import document
from router.pipeline import Pipeline
from router.readiness import Readiness
from router.request_body import read_body, request_id_of
from router.request_checks import check_request
from router.response_headers import Cors, SecurityHeaders
from router.special_tokens import SpecialTokens
from router.tiling import Tiler

api = FastAPI(title="Tessera", version=metadata.version("tessera-serve"), openapi_url=None)
# Serve copies the application, and by value what its endpoints use, when it decorates the class below: whatever they
# need stands above it.
answer_errors(api)


def access_of_replica() -> Access:
    access: Access = serve.get_replica_context().servable_object.access
    return access


def cors_origins_of_replica() -> Sequence[str]:
    origins: Sequence[str] = serve.get_replica_context().servable_object.cors_origins
    return origins


# The last one added is the first one asked.
api.add_middleware(AccessControl, access=access_of_replica)
api.add_middleware(Cors, origins=cors_origins_of_replica)
api.add_middleware(SecurityHeaders)


def event_stream(events: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(events, media_type="text/event-stream")


async def with_first(first: str, rest: AsyncIterator[str]) -> AsyncIterator[str]:
    """`first`, then `rest`."""
    yield first
    async for chunk in rest:
        yield chunk


@serve.ingress(api)
class Router:
    """The public face; holds no model."""

    async def __init__(self, config: AppConfig, encoder: DeploymentHandle, llm: DeploymentHandle) -> None:  # type: ignore[misc]
        settings = config.router
        self._names = config.model.names
        self._max_body_bytes = settings.max_body_bytes
        self._body_timeout_s = settings.body_timeout_s
        self._heartbeat_s = settings.heartbeat_s
        self._max_choices = settings.max_choices
        self._llm = llm
        self.access = Access()
        self.cors_origins = settings.cors_origins
        self._special_tokens = SpecialTokens(config.model, settings.special_tokens)
        self._metrics = RouterMetrics()
        self._pipeline = Pipeline(config, encoder, llm, ImageSource(settings), Tiler(config.model), self._metrics)
        self._readiness = Readiness(self._pipeline, self._names[0])
        self._heaps = HeapTrimmer()

    async def reconfigure(self, user_config: Any, rank: ReplicaRank) -> None:
        """Serve calls it at the start and with every new `user_config` (see live_settings.py).

        Raises ConfigError and ApiKeyError. `rank` is asked for because Serve then calls without a `user_config` too.
        """
        self.access.configure(None if user_config is None else live_settings(user_config).api_keys)

    async def check_health(self) -> None:
        """Serve calls it every ten seconds or so; says nothing against the replica."""
        await self._heaps.trim_when_due()

    @api.post("/v1/chat/completions")
    async def chat(self, request: Request) -> Response:
        return await self._respond("chat", request)

    @api.post("/v1/completions")
    async def completions(self, request: Request) -> Response:
        return await self._respond("completions", request)

    @api.post("/v1/responses")
    async def responses(self, request: Request) -> Response:
        return await self._respond("responses", request)

    @api.post("/tokenize")
    async def tokenize(self, request: Request) -> Response:
        return await self._respond("tokenize", request)

    @api.post("/detokenize")
    async def detokenize(self, request: Request) -> Response:
        return await self._respond("detokenize", request)

    async def _respond(self, endpoint: Endpoint, request: Request) -> Response:
        with self._metrics.refusals():
            body = await self._checked(endpoint, request)
        answer = asyncio.get_running_loop().create_task(self._answer(endpoint, body, request))
        if body.get("stream") and not await within(answer, self._heartbeat_s):
            return KeptOpen(answer, self._heartbeat_s, endpoint)
        found = await answer
        if not found.head.stream:
            headers = {"Retry-After": "1"} if found.head.status in (429, 503) else None
            return Response(found.head.body, found.head.status, headers, "application/json")
        return event_stream(with_first(found.head.body, found.rest))

    async def _checked(self, endpoint: Endpoint, request: Request) -> dict[str, Any]:
        body = await read_body(request, self._max_body_bytes, self._body_timeout_s)
        self._check_model(body)
        check_request(endpoint, body, self._max_choices)
        return self._special_tokens.cleared(endpoint, body, trusted=caller_of(request).trusted)

    async def _answer(self, endpoint: Endpoint, body: dict[str, Any], request: Request) -> Answer:
        with self._metrics.refusals():
            answer = await self._pipeline.answer(endpoint, body, request_id_of(request), caller_of(request).tenant)
        self._metrics.answered(answer.head.status, "")
        return answer

    @api.get("/v1/models")
    async def models(self) -> JSONResponse:
        if not handoff.replica_count(self._llm):
            raise self._starting()
        return JSONResponse(await self._llm.models.remote())

    @api.get("/openapi.json", include_in_schema=False)
    async def openapi(self, request: Request) -> JSONResponse:
        return JSONResponse(await asyncio.to_thread(document, request.app))

    @api.get("/version")
    async def version(self) -> dict[str, str]:
        """The versions of vLLM, under the key that vLLM has for it, and of Tessera."""
        return {"version": vllm_version, "tessera": metadata.version("tessera-serve")}

    @api.head("/health", include_in_schema=False)
    @api.get("/health")
    async def health(self) -> JSONResponse:
        if self._readiness.waiting_for is not None:
            raise self._starting()
        return JSONResponse({"status": "ok"})

    def _check_model(self, body: dict[str, Any]) -> None:
        name = body.get("model")
        if isinstance(name, str) and name and name not in self._names:
            raise ApiError(
                404,
                "the model does not exist here; GET /v1/models lists those that do",
                param="model",
                code="model_not_found",
            )

    def _starting(self) -> ApiError:
        return unavailable(f"starting: waiting for {self._readiness.waiting_for}", "starting", retry_after_s=5)
