"""The HTTP endpoints of the Router: OpenAI's chat API, the list of models, health."""

from __future__ import annotations

import json
import logging
import uuid
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import ValidationError
from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.exceptions import HTTPException

from llm_pool.protocol import ChatCompletionRequest, VLLMValidationError
from router import handoff
from router.config import AppConfig
from router.errors import ApiError, bad_request, from_validation, unavailable
from router.image_source import ImageSource
from router.pipeline import Pipeline
from router.readiness import Readiness
from router.special_tokens import SpecialTokens
from router.tiling import Tiler

logger = logging.getLogger("ray.serve")

MAX_REQUEST_ID = 128
api = FastAPI(title="Tessera", docs_url=None, redoc_url=None)


@serve.deployment
@serve.ingress(api)
class Router:
    """The public face; holds no model."""

    async def __init__(self, config: AppConfig, encoder: DeploymentHandle, llm: DeploymentHandle) -> None:
        settings = config.router
        self._names = config.model.names
        self._max_body_bytes = settings.max_body_bytes
        self._llm = llm
        source = ImageSource(
            max_bytes=settings.max_image_bytes,
            timeout_s=settings.fetch_timeout_s,
            private_networks=settings.fetch_private_networks,
        )
        self._special_tokens = SpecialTokens(config.model)
        self._pipeline = Pipeline(config, encoder, llm, source, Tiler(config.model))
        self._readiness = Readiness(self._pipeline, self._names[0])

    @api.post("/v1/chat/completions")
    async def chat(self, request: Request) -> Response:
        request_id = request_id_of(request)
        body = await read_body(request, self._max_body_bytes)
        self._check_model(body)
        check_chat_request(body)
        self._special_tokens.refuse(body)
        answer = await self._pipeline.answer(body, request_id)
        if not answer.head.stream:
            return Response(answer.head.body, answer.head.status, media_type="application/json")
        return StreamingResponse(_stream(answer.head.body, answer.rest), media_type="text/event-stream")

    @api.get("/v1/models")
    async def models(self) -> JSONResponse:
        if not handoff.has_replicas(self._llm):
            raise self._starting()
        return JSONResponse(await self._llm.models.remote())

    @api.get("/health")
    async def health(self) -> JSONResponse:
        if self._readiness.waiting_for is not None:
            raise self._starting()
        return JSONResponse({"status": "ok"})

    def _check_model(self, body: dict[str, Any]) -> None:
        name = body.get("model")
        if name is not None and name not in self._names:
            raise ApiError(
                404,
                "the model does not exist here; GET /v1/models lists those that do",
                param="model",
                code="model_not_found",
            )

    def _starting(self) -> ApiError:
        return unavailable(f"starting: waiting for {self._readiness.waiting_for}", "starting", retry_after_s=5)


def request_id_of(request: Request) -> str:
    """The client's `x-request-id`; Serve's proxy makes one where it is absent, and echoes it."""
    return request.headers.get("x-request-id", "")[:MAX_REQUEST_ID] or uuid.uuid4().hex


async def read_body(request: Request, limit: int) -> dict[str, Any]:
    """The JSON object that a request carries. Raises ApiError: 413 over `limit` bytes, 400 for anything else."""
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise bad_request("the body must be application/json", None)
    body = bytearray()
    declared = request.headers.get("content-length", "0")
    too_large = ApiError(413, f"the body has more than {limit} bytes", code="request_too_large")
    if declared.isdecimal() and int(declared) > limit:
        raise too_large
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise too_large
    try:
        parsed = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        # UnicodeDecodeError is a ValueError too.
        raise bad_request("the body is not valid JSON", None) from None
    if not isinstance(parsed, dict):
        raise bad_request("the body must be a JSON object", None)
    return parsed


def _refuse_constant(name: str) -> float:
    raise ValueError(name)  # NaN and Infinity are no JSON


def check_chat_request(body: dict[str, Any]) -> None:
    """Validates with vLLM's own request model. Raises ApiError 400, naming the field."""
    try:
        ChatCompletionRequest.model_validate(body)
    except ValidationError as error:
        raise from_validation(error) from None
    except VLLMValidationError as error:
        raise bad_request(str(error.args[0]), error.parameter) from None
    except (ValueError, TypeError, RecursionError):
        raise bad_request("the request is malformed", None) from None


async def _stream(first: str, rest: Any) -> Any:
    yield first
    async for chunk in rest:
        yield chunk


@api.exception_handler(ApiError)
async def _api_error(request: Request, error: ApiError) -> Response:
    return Response(error.body(), error.status, error.headers(), "application/json")


@api.exception_handler(HTTPException)
async def _http_error(request: Request, error: HTTPException) -> Response:
    """Unknown paths and methods."""
    refused = ApiError(error.status_code, str(error.detail))
    return Response(refused.body(), refused.status, error.headers, "application/json")


@api.exception_handler(Exception)
async def _unexpected(request: Request, error: Exception) -> Response:
    logger.exception("request failed", exc_info=error)
    return Response(ApiError(500, "internal error").body(), 500, media_type="application/json")
