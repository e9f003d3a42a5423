"""Requests for a comparison with `vllm serve`: generated from a seed, valid ones and spoilt ones."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.pictures import data_url, picture

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"

Body = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One request. spoilt: what was done to make it invalid, "" for a valid one; pictures: how many it holds."""

    path: str
    body: Body
    spoilt: str
    pictures: int

    @property
    def name(self) -> str:
        return f"{self.path} {self.spoilt or 'valid'}"


QUESTIONS = ("What do you see?", "Which number is it?", "What colour is it?", "Read it, please.", "Is it large?")
SIZES = ((336, 336), (200, 300), (672, 336), (336, 1008), (672, 672))
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks at a part of the picture.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
SCHEMA = {"type": "object", "properties": {"n": {"enum": [1, 2, 3]}}, "required": ["n"], "additionalProperties": False}

# Each is laid over a valid body of the endpoint.
OPTIONS: dict[str, tuple[Body, ...]] = {
    CHAT: (
        {},
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        {"n": 2, "temperature": 0.8, "seed": 7},
        {"n": 2, "temperature": 0.8, "seed": 7, "stream": True, "stream_options": {"include_usage": True}},
        {"temperature": 1.0, "seed": 3, "top_p": 0.9, "top_k": 20, "min_p": 0.01},
        {"logprobs": True, "top_logprobs": 3},
        {"logprobs": True, "stream": True},
        {"prompt_logprobs": 1},
        {"stop": ["a", "e"]},
        {"stop": "o", "include_stop_str_in_output": True},
        {"stop_token_ids": [64, 68]},
        {"logit_bias": {"64": 100}},
        {"presence_penalty": 1.5, "frequency_penalty": 0.5, "repetition_penalty": 1.2},
        {"min_tokens": 6, "ignore_eos": True},
        {"max_tokens": None, "max_completion_tokens": 4},
        {"bad_words": ["a"]},
        {"allowed_token_ids": [64, 65, 66]},
        {"skip_special_tokens": False},
        {"return_token_ids": True},
        {"return_tokens_as_token_ids": True, "logprobs": True},
        {"echo": True, "add_generation_prompt": False, "messages": [{"role": "user", "content": "Hello."}]},
        {"response_format": {"type": "json_object"}, "max_tokens": 12},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}, "max_tokens": 20},
        {"structured_outputs": {"choice": ["red", "blue"]}},
        {"structured_outputs": {"regex": "[0-9]{3}"}, "stream": True},
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": "none"},
        {"tools": [TOOL], "tool_choice": "required", "max_tokens": 40},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "look"}}, "max_tokens": 40},
        {"tools": [TOOL], "tool_choice": "required", "max_tokens": 40, "stream": True},
        {"truncate_prompt_tokens": -1},
        {"chat_template_kwargs": {"unknown": 1}},
        {"user": "someone", "priority": 0, "metadata": {"a": "b"}, "cache_salt": "salt"},
        {"not_a_field": True},
    ),
    COMPLETIONS: (
        {},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"echo": True},
        {"echo": True, "logprobs": 2, "max_tokens": 1},
        {"logprobs": 2},
        {"n": 2, "temperature": 0.8, "seed": 5},
        {"prompt": ["A number", "A colour"]},
        {"prompt": [72, 64, 75]},
        {"prompt": [[72, 64], [75]]},
        {"stop": ["e"], "stream": True},
        {"structured_outputs": {"regex": "[0-9]{2}"}},
        {"response_format": {"type": "json_object"}, "max_tokens": 12},
    ),
    RESPONSES: (
        {},
        {"instructions": "Be brief."},
        {"temperature": 0.7, "seed": 1, "top_p": 0.9},
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}, "max_output_tokens": 20},
        {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
        {"tools": [{"type": "function", **TOOL["function"]}], "max_output_tokens": 8},
        {"metadata": {"a": "b"}, "store": False, "truncation": "auto", "user": "someone"},
        {"stream": True},
    ),
    TOKENIZE: ({}, {"add_generation_prompt": False}, {"return_token_strs": True}, {"tools": [TOOL]}),
    DETOKENIZE: ({},),
}
# Of so many valid requests, and of so many spoilt ones.
WEIGHTS = {CHAT: 130, COMPLETIONS: 20, RESPONSES: 30, TOKENIZE: 8, DETOKENIZE: 2}
SPOILT_WEIGHTS = {CHAT: 80, COMPLETIONS: 12, RESPONSES: 12, TOKENIZE: 4, DETOKENIZE: 2}


def _set(**changes: Any) -> Callable[[Body], None]:
    return lambda body: body.update(copy.deepcopy(changes))


def _first_message(**changes: Any) -> Callable[[Body], None]:
    return lambda body: body["messages"][0].update(copy.deepcopy(changes))


def _drop(field: str) -> Callable[[Body], None]:
    return lambda body: body.pop(field)


_BAD_PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,bm8gcGljdHVyZQ=="}}
_SAMPLING: dict[str, Callable[[Body], None]] = {
    "temperature below 0": _set(temperature=-1),
    "temperature is a word": _set(temperature="hot"),
    "top_p above 1": _set(top_p=2),
    "top_k below -1": _set(top_k=-5),
    "min_p above 1": _set(min_p=7),
    "stop is a number": _set(stop=5),
    "stop has a number": _set(stop=["a", 5]),
    "stop is empty": _set(stop=""),
    "frequency_penalty above 2": _set(frequency_penalty=3),
    "repetition_penalty is 0": _set(repetition_penalty=0),
    "seed is too large": _set(seed=2**70),
    "unknown model": _set(model="other"),
    "model is a number": _set(model=5),
    "stream is a word": _set(stream="perhaps"),
    "stream_options without stream": _set(stream=False, stream_options={"include_usage": True}),
    "logit_bias with a word": _set(logit_bias={"x": 1}),
    "logit_bias beyond the vocabulary": _set(logit_bias={"100000": 1}),
    "structured_outputs of two kinds": _set(structured_outputs={"regex": "a", "choice": ["a"]}),
    "structured_outputs of no kind": _set(structured_outputs={}),
    "bad regex": _set(structured_outputs={"regex": "["}),
    "bad grammar": _set(structured_outputs={"grammar": "root ::= ["}),
    "priority without its scheduler": _set(priority=3),
}
SPOILING: dict[str, dict[str, Callable[[Body], None]]] = {
    CHAT: _SAMPLING
    | {
        "n is 0": _set(n=0),
        "n is below 0": _set(n=-1),
        "n is a word": _set(n="many"),
        "max_tokens below 0": _set(max_tokens=-1),
        "max_tokens is 0": _set(max_tokens=0),
        "min_tokens above max_tokens": _set(min_tokens=100, max_tokens=4),
        "top_logprobs without logprobs": _set(logprobs=False, top_logprobs=2),
        "top_logprobs too many": _set(logprobs=True, top_logprobs=1000),
        "prompt_logprobs in a stream": _set(prompt_logprobs=1, stream=True),
        "no messages": _drop("messages"),
        "messages is a text": _set(messages="hi"),
        "messages of numbers": _set(messages=[5]),
        "a message without a role": lambda body: body["messages"][0].pop("role"),
        "content is a number": _first_message(content=5),
        "content has an unknown part": _first_message(content=[{"type": "hologram", "hologram": 1}]),
        "a text part without a text": _first_message(content=[{"type": "text"}]),
        "an image part without an image": _first_message(content=[{"type": "image_url"}]),
        "a picture that is none": _first_message(content=[_BAD_PICTURE]),
        "a data URL without data": _first_message(content=[{"type": "image_url", "image_url": {"url": "data:,"}}]),
        "a URL of an unknown scheme": _first_message(
            content=[{"type": "image_url", "image_url": {"url": "gopher://x"}}]
        ),
        "an audio part": _first_message(
            content=[{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]
        ),
        "tools is empty": _set(tools=[]),
        "a tool without a function": _set(tools=[{"type": "function"}]),
        "tool_choice without tools": _set(tool_choice="required"),
        "tool_choice of another tool": _set(
            tools=[TOOL], tool_choice={"type": "function", "function": {"name": "other"}}
        ),
        "tool_choice unknown": _set(tools=[TOOL], tool_choice="perhaps"),
        "response_format unknown": _set(response_format={"type": "verse"}),
        "response_format without its schema": _set(response_format={"type": "json_schema"}),
        "bad schema": _set(
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}
        ),
        "bad schema in a stream": _set(
            stream=True,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}},
        ),
        "cache_salt is empty": _set(cache_salt=""),
        "truncate_prompt_tokens below -1": _set(truncate_prompt_tokens=-5),
        "prompt too long": _first_message(content="word " * 20000),
        "a template of the client's": _set(chat_template="{{ messages }}"),
        "both ends open": _set(add_generation_prompt=True, continue_final_message=True),
        "allowed_token_ids beyond the vocabulary": _set(allowed_token_ids=[10**6]),
        "stream_options is a number": _set(stream=True, stream_options=5),
    },
    COMPLETIONS: _SAMPLING
    | {
        "no prompt": _drop("prompt"),
        "prompt is a number": _set(prompt=5),
        "prompt is empty": _set(prompt=[]),
        "prompt of an empty list": _set(prompt=[[]]),
        "prompt of texts and numbers": _set(prompt=["a", 5]),
        "token ids beyond the vocabulary": _set(prompt=[10**6]),
        "logprobs below -1": _set(logprobs=-5),
        "suffix": _set(suffix="end"),
        "prompt too long": _set(prompt="word " * 20000),
        "max_tokens below 0": _set(max_tokens=-1),
    },
    RESPONSES: {
        "no input": _drop("input"),
        "input is a number": _set(input=5),
        "input of numbers": _set(input=[5]),
        "an item of an unknown type": _set(input=[{"type": "hologram"}]),
        "content is a number": _set(input=[{"role": "user", "content": 5}]),
        "unknown model": _set(model="other"),
        "temperature is a word": _set(temperature="hot"),
        "tool without a name": _set(tools=[{"type": "function"}]),
        "a prompt template": _set(prompt={"id": "x"}),
        "tool_choice without tools": _set(tool_choice="required"),
        "an earlier response": _set(previous_response_id="resp_1"),
        "include unknown": _set(include=["everything"]),
        "prompt too long": _set(input="word " * 20000),
    },
    TOKENIZE: {
        "neither prompt nor messages": _drop("messages"),
        "messages is a text": _set(messages="hi"),
        "both ends open": _set(add_generation_prompt=True, continue_final_message=True),
        "unknown model": _set(model="other"),
    },
    DETOKENIZE: {"no tokens": _drop("tokens"), "a token below 0": _set(tokens=[-1])},
}


@functools.cache
def _url(seed: int, size: tuple[int, int]) -> str:
    return data_url(picture(seed, size))


def _content(rng: random.Random, pictures: int, text_type: str) -> list[Body]:
    parts = [{"type": text_type, "text": rng.choice(QUESTIONS)}]
    for _ in range(pictures):
        url = _url(rng.randrange(6), rng.choice(SIZES))
        part = {"type": "image_url", "image_url": {"url": url}}
        if text_type == "input_text":
            part = {"type": "input_image", "image_url": url, "detail": "auto"}
        parts.insert(rng.randrange(len(parts) + 1), part)
    return parts


def _turns(rng: random.Random, pictures: int, text_type: str) -> list[Body]:
    """A conversation whose last turn is the user's and holds the pictures."""
    turns: list[Body] = []
    if rng.random() < 0.3:
        turns.append({"role": "system", "content": "Answer in one word."})
    if rng.random() < 0.2:
        turns += [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello. What is it?"}]
    return [*turns, {"role": "user", "content": _content(rng, pictures, text_type)}]


def _valid(rng: random.Random, path: str, pictures: int) -> Body:
    if path == CHAT:
        return {"messages": _turns(rng, pictures, "text"), "temperature": 0, "max_tokens": 8}
    if path == COMPLETIONS:
        return {"prompt": rng.choice(QUESTIONS), "temperature": 0, "max_tokens": 8}
    if path == RESPONSES:
        return {"input": _turns(rng, pictures, "input_text"), "temperature": 0, "max_output_tokens": 8}
    if path == TOKENIZE:
        return {"messages": _turns(rng, pictures, "text")}
    return {"tokens": [rng.randrange(600) for _ in range(6)]}


def _pictures(body: Body) -> int:
    return str(body).count("data:image/png;base64,iVBOR")


def _cycle(rng: random.Random, items: list[Any]) -> Iterator[Any]:
    while True:
        rng.shuffle(items)
        yield from items


def requests(model: str, seed: int) -> list[Case]:
    """300 requests: 190 valid, 110 spoilt."""
    rng = random.Random(seed)
    cases = []
    for path, count in WEIGHTS.items():
        options = _cycle(rng, list(OPTIONS[path]))
        for _ in range(count):
            pictures = rng.choice((0, 1, 1, 1, 1, 1, 2)) if path not in (COMPLETIONS, DETOKENIZE) else 0
            body = _valid(rng, path, pictures) | copy.deepcopy(next(options)) | {"model": model}
            cases.append(Case(path, {k: v for k, v in body.items() if v is not None}, "", _pictures(body)))
    for path, count in SPOILT_WEIGHTS.items():
        spoilings = _cycle(rng, sorted(SPOILING[path].items()))
        for _ in range(count):
            pictures = rng.choice((0, 1)) if path not in (COMPLETIONS, DETOKENIZE) else 0
            name, spoil = next(spoilings)
            body = _valid(rng, path, pictures) | {"model": model}
            spoil(body)
            cases.append(Case(path, body, name, _pictures(body)))
    return cases
