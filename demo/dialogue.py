"""Conversations as the model reads them: chat messages, and token ids with what is to be learned marked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from demo.architecture import TOKENS_PER_TILE
from demo.examples import Example, Turn
from demo.tokenizer import (
    EOT,
    HEADER_END,
    HEADER_START,
    IMAGE,
    IMAGE_END,
    IMAGE_START,
    PATCH,
    TILE_X_SEPARATOR,
    TILE_Y_SEPARATOR,
)


@dataclass(frozen=True)
class Tokens:
    """ids: int64 [length], pictures expanded; learned: bool [length], True for the tokens of answers and their end."""

    ids: np.ndarray
    learned: np.ndarray


def question_message(turn: Turn, picture_parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The user's message; `picture_parts` are content parts, one for each picture of the turn."""
    text = [{"type": "text", "text": turn.question.text}]
    return {"role": "user", "content": text + picture_parts if turn.pictures_last else picture_parts + text}


def messages(example: Example) -> list[dict[str, Any]]:
    """The whole conversation, answers included, with placeholders for pictures, as the chat template takes it."""
    result: list[dict[str, Any]] = []
    if example.system:
        result.append({"role": "system", "content": example.system})
    for turn in example.turns:
        result.append(question_message(turn, [{"type": "image"}] * len(turn.pictures)))
        result.append({"role": "assistant", "content": turn.question.answer})
    return result


class DialogueEncoder:
    """Turns examples into token ids; the same ids as Llama 4's processor gives for the same conversation."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, chat_template: str) -> None:
        self._tokenizer = tokenizer
        self._template = chat_template
        names = (
            EOT,
            HEADER_START,
            HEADER_END,
            IMAGE,
            IMAGE_START,
            IMAGE_END,
            PATCH,
            TILE_X_SEPARATOR,
            TILE_Y_SEPARATOR,
        )
        self._id = {name: tokenizer.convert_tokens_to_ids(name) for name in names}
        self.pad_id: int = tokenizer.pad_token_id
        self._answer_header = self._encode(f"{HEADER_START}assistant{HEADER_END}\n\n")

    def __call__(self, example: Example) -> Tokens:
        text = self._tokenizer.apply_chat_template(
            messages(example), chat_template=self._template, tokenize=False, add_generation_prompt=False
        )
        ids: list[int] = []
        pictures = iter(example.pictures)
        for token in self._encode(text):
            if token == self._id[IMAGE]:
                picture = next(pictures)
                ids += self.picture_ids((picture.rows, picture.columns))
            else:
                ids.append(token)
        return Tokens(np.array(ids), self._learned(ids))

    def picture_ids(self, grid: tuple[int, int]) -> list[int]:
        """Token ids of one picture of (rows, columns) tiles."""
        tile = [self._id[PATCH]] * TOKENS_PER_TILE
        ids = [self._id[IMAGE_START]]
        if grid != (1, 1):
            row = [*tile, self._id[TILE_X_SEPARATOR]] * grid[1]
            ids += [*row[:-1], self._id[TILE_Y_SEPARATOR]] * grid[0]
        return [*ids, self._id[IMAGE], *tile, self._id[IMAGE_END]]

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids

    def _learned(self, ids: list[int]) -> np.ndarray:
        learned = np.zeros(len(ids), dtype=bool)
        header = self._answer_header
        for end in range(len(header), len(ids)):
            if ids[end - len(header) : end] == header:
                stop = ids.index(self._id[EOT], end)
                learned[end : stop + 1] = True
        return learned
