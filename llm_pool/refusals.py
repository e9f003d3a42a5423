"""What vLLM says is wrong with a request, as a reply in OpenAI's shape."""

from __future__ import annotations

import logging
from typing import Any

from pydantic import ValidationError
from vllm.entrypoints.serve import create_error_response
from vllm.entrypoints.serve.engine.protocol import ErrorInfo
from vllm.exceptions import GenerationError, VLLMValidationError
from vllm.v1.engine.exceptions import EngineDeadError

from llm_pool.errors import error_body
from llm_pool.reply import Endpoint, Reply
from llm_pool.streams import StreamError

logger = logging.getLogger("ray.serve")

# vLLM's names of what is too long; a client knows neither.
_TOO_LONG = ("input_tokens", "input_text")
# What a client calls the prompt.
_PROMPT: dict[Endpoint, str] = {"chat": "messages", "completions": "prompt", "responses": "input"}
# Fields of a request whose value becomes a grammar.
_STRUCTURES = ("response_format", "structured_outputs", "text", "tool_choice")
_NO_STRUCTURE = (None, {"type": "text"}, {"format": {"type": "text"}}, "auto", "none")


def refusal(error: Exception, endpoint: Endpoint, body: dict[str, Any], request_id: str) -> Reply:
    """What vLLM raised before it began to answer, which maps most exceptions to a status itself."""
    if isinstance(error, EngineDeadError):
        dead = error_body(503, "the engine is gone", "ServiceUnavailableError", code="engine_dead")
        return Reply(503, False, dead, retryable=True)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        # vLLM's wrapping validators stand in the path too, under names that are none of the request's.
        param = next((step for step in first["loc"] if str(step).isidentifier()), None)
        return reply_of(ErrorInfo(message=first["msg"], type="BadRequestError", param=param, code=400), endpoint)
    info = error.info if isinstance(error, StreamError) else create_error_response(error).error
    if isinstance(error, VLLMValidationError):
        # str(error) repeats the value that was refused.
        info.message = str(error.args[0])
    if info.code == 500:
        structure = _structure(body)
        # vLLM compiles schemas and grammars in the engine and tells of a failure only that there was one.
        if structure is not None and isinstance(error, GenerationError | StreamError):
            message = f"{structure}: the engine cannot follow this structure"
            return reply_of(ErrorInfo(message=message, type="BadRequestError", param=structure, code=400), endpoint)
        logger.error("request %s failed in vLLM", request_id, exc_info=error)
        info.message = "the engine failed on this request"
    return reply_of(info, endpoint)


def reply_of(info: ErrorInfo, endpoint: Endpoint) -> Reply:
    """vLLM's error under the names that a client knows."""
    param, code = info.param, None
    if param in _TOO_LONG:
        param, code = _PROMPT.get(endpoint), "context_length_exceeded"
    elif param == "model" and info.code == 404:
        code = "model_not_found"
    return Reply(info.code, False, error_body(info.code, info.message, info.type, param=param, code=code))


def _structure(body: dict[str, Any]) -> str | None:
    """The field in which a request asks for a structure."""
    return next((field for field in _STRUCTURES if body.get(field) not in _NO_STRUCTURE), None)
