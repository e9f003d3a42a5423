"""What a request has to be, before anything is done for it: vLLM's own model of it, and what that lets pass."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from llm_pool.protocol import VLLMValidationError, request_model
from llm_pool.reply import Endpoint
from router.errors import bad_request, from_validation

# vLLM's request model takes any word for a role and leaves it to the chat template, which may lose the message.
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
# vLLM takes these from its own peers: token ids that replace the prompt, tensors, addresses of other engines.
INTERNAL_FIELDS = ("kv_transfer_params", "ec_transfer_params", "prompt_embeds")
# What is asked, by endpoint.
QUESTIONS = ("messages", "prompt", "input")


def check_request(endpoint: Endpoint, body: dict[str, Any], max_choices: int) -> None:
    """Validates with vLLM's own request model. Raises ApiError 400, naming the field.

    max_choices: most answers of one request.
    """
    for field in INTERNAL_FIELDS:
        if body.get(field) is not None:
            raise bad_request(f"{field}: not accepted here", field)
    if endpoint == "responses" and body.get("background"):
        raise bad_request("background: answers are not kept here; ask without it", "background")
    # Elsewhere it is no field of the request, and may be anything.
    messages = body.get("messages") if endpoint in ("chat", "tokenize") else None
    if endpoint == "chat" and messages is None:
        raise bad_request("messages: a list is required", "messages")
    _check_roles(messages)
    try:
        request: Any = request_model(endpoint, body).model_validate(dict(body))
    except ValidationError as error:
        raise from_validation(error, body) from None
    except VLLMValidationError as error:
        raise bad_request(str(error.args[0]), error.parameter) from None
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise bad_request("the request is malformed", None) from None
    choices = request.n if "n" in type(request).model_fields else None
    if (choices or 1) * _prompts(body.get("prompt")) > max_choices:
        raise bad_request(f"n: at most {max_choices} answers may be asked for in one request", "n")
    for field in QUESTIONS:
        if field in type(request).model_fields and body.get(field) == []:
            raise bad_request(f"{field}: there must be at least one", field)
    if body.get("echo") and isinstance(messages, list) and isinstance(messages[-1].get("content"), list):
        # vLLM fails on it.
        raise bad_request("echo: the last message must be a plain text", "echo")


def _prompts(prompt: Any) -> int:
    """How many prompts a completion has: a text, token ids, or a list of these."""
    return len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1


def _check_roles(messages: Any) -> None:
    for index, message in enumerate(messages if isinstance(messages, list) else []):
        if isinstance(message, dict) and message.get("role") not in ROLES:
            path = f"messages[{index}].role"
            raise bad_request(f"{path}: must be one of {', '.join(ROLES)}", path)
