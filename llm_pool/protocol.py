"""vLLM's request models, for those who check requests without touching an engine.

The one place that knows where vLLM keeps them. Importing it imports vLLM, which takes seconds.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.serve.tokenize.protocol import (
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
)
from vllm.exceptions import VLLMValidationError
from vllm.version import __version__ as vllm_version

from llm_pool.reply import Endpoint

__all__ = ["REQUEST_TYPES", "VLLMValidationError", "request_model", "vllm_version"]

# What each endpoint takes; /tokenize a prompt or a chat.
REQUEST_TYPES: dict[Endpoint, Any] = {
    "chat": ChatCompletionRequest,
    "completions": CompletionRequest,
    "responses": ResponsesRequest,
    "tokenize": TokenizeChatRequest | TokenizeCompletionRequest,
    "detokenize": DetokenizeRequest,
}


def request_model(endpoint: Endpoint, body: dict[str, Any]) -> type[BaseModel]:
    """vLLM's model of a request."""
    model: type[BaseModel] = REQUEST_TYPES[endpoint]
    if endpoint == "tokenize":
        return TokenizeChatRequest if "messages" in body else TokenizeCompletionRequest
    return model
