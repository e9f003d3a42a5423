"""Every error of the HTTP application in OpenAI's shape, whoever raised it."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request, Response
from ray.exceptions import TaskCancelledError
from starlette.exceptions import HTTPException

from router.errors import ApiError

logger = logging.getLogger("ray.serve")

# The status that nginx, and Serve's proxy, log for such a request.
CLIENT_CLOSED_REQUEST = 499


def answer_errors(api: FastAPI) -> None:
    """Registers the handlers: refusals, unknown paths and methods, and faults of our own."""

    @api.exception_handler(ApiError)
    async def refused(request: Request, error: ApiError) -> Response:
        return Response(error.body(), error.status, error.headers(), "application/json")

    @api.exception_handler(HTTPException)
    async def not_routed(request: Request, error: HTTPException) -> Response:
        answer = ApiError(error.status_code, str(error.detail))
        return Response(answer.body(), answer.status, error.headers, "application/json")

    @api.exception_handler(TaskCancelledError)
    async def left(request: Request, error: TaskCancelledError) -> Response:
        # The client is gone, and Serve has cancelled what it waited for; nobody reads this.
        return Response(status_code=CLIENT_CLOSED_REQUEST)

    @api.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        logger.error("request failed with %s", type(error).__name__, exc_info=error)
        return Response(ApiError(500, "internal error").body(), 500, media_type="application/json")
