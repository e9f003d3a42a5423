"""The model's control tokens, which no client may type: they would bind to a picture or open a turn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

from transformers import AutoTokenizer

from encoder_pool.settings import ModelSettings
from llm_pool.reply import Endpoint
from router.errors import ApiError, bad_request

# What becomes of a control token in a text: the request is refused, or the token becomes plain text.
Mode = Literal["refuse", "escape"]

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
# Written after a token's first character it leaves the text to look the same, and the token to be none.
WORD_JOINER = "\u2060"


class SpecialTokens:
    """Keeps control tokens out of prompts."""

    def __init__(self, model: ModelSettings, mode: Mode) -> None:
        tokenizer = AutoTokenizer.from_pretrained(model.source, revision=model.revision)
        special = {token.content: i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._pattern = re.compile("|".join(re.escape(token) for token in sorted(special, key=len, reverse=True)))
        self._ids = frozenset(special.values())
        self._first_id = tokenizer.bos_token_id
        self._mode = mode

    def cleared(self, endpoint: Endpoint, body: dict[str, Any], *, trusted: bool) -> dict[str, Any]:
        """The request without a control token in what becomes its prompt; `body` is left as it is.

        trusted: the caller may send a whole prompt to /v1/completions, control tokens included. Raises ApiError 400
        `special_token_in_text`, naming the text that holds a token or the parts of one. In the mode `escape` that is
        left for tokens in several parts, behind JSON's escapes, in the names of keys, and for token ids.
        """
        fields = set(PROMPT_FIELDS)
        if endpoint == "tokenize" or (endpoint == "completions" and trusted):
            fields -= {"prompt", "suffix"}  # tokens of a tokenized prompt go back to the client, not to the model
        if self._mode == "escape":
            body = body | {field: self._escaped(body[field]) for field in fields & body.keys()}
        for field in PROMPT_FIELDS:
            if field in fields:
                self._refuse(body.get(field), field)
        return body

    def _refuse(self, value: Any, field: str) -> None:
        for path, text in _texts(value, field):
            if self._pattern.search(text):
                raise _refusal(path)
        if field == "prompt" and isinstance(value, list):
            prompts = {field: value} if value and isinstance(value[0], int) else dict(_numbered(value, field))
            for path, ids in prompts.items():
                # The token that begins a text is the one that a prompt of ids has to begin with.
                if isinstance(ids, list) and not self._ids.isdisjoint(ids[ids[:1] == [self._first_id] :]):
                    raise _refusal(path)

    def _escaped(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._pattern.sub(lambda found: found[0][0] + WORD_JOINER + found[0][1:], value)
        if isinstance(value, list):
            return [self._escaped(item) for item in value]
        if isinstance(value, dict):
            return {key: item if key == "image_url" else self._escaped(item) for key, item in value.items()}
        return value


def _refusal(path: str) -> ApiError:
    return bad_request(f"{path}: the text contains a control token of the model", path, "special_token_in_text")


def _numbered(values: list[Any], path: str) -> Iterator[tuple[str, Any]]:
    for index, value in enumerate(values):
        yield f"{path}[{index}]", value


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
        for item_path, item in _numbered(value, path):
            yield from _texts(item, item_path)
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
