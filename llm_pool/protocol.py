"""vLLM's request models, for those who check requests without touching an engine.

The one place that knows where vLLM keeps them. Importing it imports vLLM, which takes seconds.
"""

from __future__ import annotations

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.exceptions import VLLMValidationError

__all__ = ["CHAT_FIELDS", "ChatCompletionRequest", "VLLMValidationError"]

# Keys that a chat request may have; vLLM ignores others.
CHAT_FIELDS: frozenset[str] = frozenset(ChatCompletionRequest.model_fields)
