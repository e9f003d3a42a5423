"""What vLLM says is wrong with a request, as a reply in OpenAI's shape."""

from __future__ import annotations

import logging
import re
from typing import Any

from pydantic import ValidationError
from vllm.entrypoints.serve import create_error_response
from vllm.entrypoints.serve.engine.protocol import ErrorInfo
from vllm.exceptions import GenerationError, VLLMClientError, VLLMValidationError
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
_ABOUT_STRUCTURE = re.compile("schema|regex|grammar|structur", re.IGNORECASE)
# An operator's option, as vLLM's messages name them.
_OPTION = re.compile("--[a-z]|VLLM_[A-Z]")
# Fields whose names are words that vLLM's messages use for other things.
_WORDS = {"model", "user", "input", "text", "prompt", "messages", "stream", "store", "tools"}
# What vLLM meets in messages of a form that its models let pass and its renderer does not know.
_UNFORESEEN = (LookupError, AttributeError, AssertionError, RecursionError)
_NO_STRUCTURE = (None, {"type": "text"}, {"format": {"type": "text"}}, "auto", "none")


def refusal(
    error: Exception, endpoint: Endpoint, body: dict[str, Any], request_id: str, *, in_engine: bool = True
) -> Reply:
    """What vLLM raised before it began to answer, which maps most exceptions to a status itself.

    in_engine: whether the engine had the request already; else vLLM was still making a prompt of it.
    """
    if isinstance(error, EngineDeadError):
        dead = error_body(503, "the engine is gone", "ServiceUnavailableError", code="engine_dead")
        return Reply(503, False, dead, retryable=True)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        # vLLM's wrapping validators stand in the path too, under names that are none of the request's.
        param = next((step for step in first["loc"] if str(step).isidentifier()), None)
        return reply_of(ErrorInfo(message=first["msg"], type="BadRequestError", param=param, code=400), endpoint, body)
    info = error.info if isinstance(error, StreamError) else create_error_response(error).error
    if isinstance(error, VLLMValidationError):
        # str(error) repeats the value that was refused.
        info.message = str(error.args[0])
    if info.code == 500:
        structure = _structure(body)
        # vLLM compiles schemas and grammars in the engine and tells of a failure only that there was one.
        if structure is not None and isinstance(error, GenerationError | StreamError):
            message = f"{structure}: the engine cannot follow this structure"
            info = ErrorInfo(message=message, type="BadRequestError", param=structure, code=400)
            return reply_of(info, endpoint, body)
        if isinstance(error, _UNFORESEEN) and not in_engine:
            prompt = _PROMPT.get(endpoint)
            logger.warning("request %s: vLLM made no prompt of it (%s)", request_id, type(error).__name__)
            message = f"{prompt or 'the request'}: something in it has a form that is not supported"
            return reply_of(ErrorInfo(message=message, type="BadRequestError", param=prompt, code=400), endpoint, body)
        logger.error("request %s failed in vLLM", request_id, exc_info=error)
        info.message = "the engine failed on this request"
    return reply_of(info, endpoint, body)


def reply_of(info: ErrorInfo, endpoint: Endpoint, body: dict[str, Any]) -> Reply:
    """vLLM's error in a client's terms: the field of its request, and none of the server's options."""
    message, param, code = info.message, info.param, None
    if param in _TOO_LONG or (param is None and "context length" in message):
        param, code = _PROMPT.get(endpoint), "context_length_exceeded"
    elif param == "model" and info.code == 404:
        code = "model_not_found"
    elif param is None and info.code == 400:
        param = _field_in(message, body)
    if _OPTION.search(message):
        message = f"{param}: not enabled on this server" if param else "this is not enabled on this server"
    return Reply(info.code, False, error_body(info.code, message, info.type, param=param, code=code))


def _field_in(message: str, body: dict[str, Any]) -> str | None:
    """The field of the request that vLLM's message names, in code or in words."""
    named = [field for field in body.keys() - _WORDS if re.search(rf"\b{re.escape(field)}\b", message)]
    named += [field for field in body if "_" in field and field.replace("_", " ") in message.lower()]
    if named:
        return max(named, key=len)
    if "tool_choice" in message and body.get("tools"):
        return "tools"
    return _structure(body) if _ABOUT_STRUCTURE.search(message) else None


def _structure(body: dict[str, Any]) -> str | None:
    """The field in which a request asks for a structure."""
    return next((field for field in _STRUCTURES if body.get(field) not in _NO_STRUCTURE), None)


class NoClientErrors(logging.Filter):
    """Drops vLLM's tracebacks of what a client did wrong in a stream: it is told, and the text holds what it sent."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, ValueError | TypeError | VLLMClientError)
