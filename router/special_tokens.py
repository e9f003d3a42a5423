"""The model's control tokens, which no client may type: they would bind to a picture or open a turn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from transformers import AutoTokenizer

from encoder_pool.settings import ModelSettings
from llm_pool.reply import Endpoint
from router.errors import bad_request

# Whatever a chat template may write into the prompt. Others, such as `stop`, may name control tokens.
PROMPT_FIELDS = (
    "messages",
    "input",
    "instructions",
    "prompt",
    "suffix",
    "tools",
    "functions",
    "documents",
    "chat_template_kwargs",
)


class SpecialTokens:
    """Finds control tokens in the texts of a request."""

    def __init__(self, model: ModelSettings) -> None:
        tokenizer = AutoTokenizer.from_pretrained(model.source, revision=model.revision)
        added = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
        self._pattern = re.compile("|".join(re.escape(token) for token in sorted(added, key=len, reverse=True)))

    def refuse(self, endpoint: Endpoint, body: dict[str, Any]) -> None:
        """Raises ApiError 400 `special_token_in_text`, naming the text that holds a token or the parts of one."""
        for field in PROMPT_FIELDS:
            if endpoint == "tokenize" and field == "prompt":
                continue  # its tokens go back to the client, not to the model
            for path, text in _texts(body.get(field), field):
                if self._pattern.search(text):
                    message = f"{path}: the text contains a control token of the model"
                    raise bad_request(message, path, "special_token_in_text")


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """(path, text) of every string in `value`, names of keys included, as the template may come to write it."""
    if isinstance(value, str):
        yield path, value
        # A tool call's arguments are JSON in a string, where a token may hide behind escapes.
        if "\\" in value:
            try:
                yield path, json.dumps(json.loads(value), ensure_ascii=False)
            except (ValueError, RecursionError):
                return
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}[{index}]")
        yield path, _joined(value, trimmed=False)
        yield path, _joined(value, trimmed=True)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield path, str(key)
            # An image's URL is not text of the prompt, and may be megabytes long.
            if key != "image_url":
                yield from _texts(item, f"{path}.{key}")


def _joined(parts: list[Any], *, trimmed: bool) -> str:
    """The text parts of a message as one: templates write them without anything between. Pictures stay between."""
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "".join((text.strip() if trimmed else text) if isinstance(text, str) else "\0" for text in texts)
