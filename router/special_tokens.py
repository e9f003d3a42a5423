"""The model's control tokens, which no client may type: they would bind to a picture or open a turn."""

from __future__ import annotations

import re
from typing import Any

from transformers import AutoTokenizer

from encoder_pool.settings import ModelSettings
from router.errors import bad_request


class SpecialTokens:
    """Finds control tokens in the texts of a chat request."""

    def __init__(self, model: ModelSettings) -> None:
        tokenizer = AutoTokenizer.from_pretrained(model.source, revision=model.revision)
        added = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
        self._pattern = re.compile("|".join(re.escape(token) for token in sorted(added, key=len, reverse=True)))

    def refuse(self, body: dict[str, Any]) -> None:
        """Raises ApiError 400 `special_token_in_text`, naming the text of `body["messages"]` that holds a token."""
        self._search(body.get("messages"), "messages")

    def _search(self, value: Any, path: str) -> None:
        if isinstance(value, str):
            if self._pattern.search(value):
                message = f"{path}: the text contains a control token of the model"
                raise bad_request(message, path, "special_token_in_text")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                self._search(item, f"{path}[{index}]")
        elif isinstance(value, dict):
            for key, item in value.items():
                # An image's URL is not text of the prompt, and may be megabytes long.
                if key != "image_url":
                    self._search(item, f"{path}.{key}")
