"""What is asked of a stock vLLM engine and of a decoder that gets embeddings, and how their answers are noted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

from PIL import Image

from tests.pictures import picture, user

SMALL = picture(1)
CASES: dict[str, list[str | Image.Image]] = {
    "text": ["Say what you can."],
    "one tile": ["What is in ", SMALL, "?"],
    "wide": [picture(2, (1008, 336)), "Which colour is on the left?"],
    "tall": [picture(3, (336, 1008)), "Which colour is at the top?"],
    "most tiles": [picture(4, (1344, 1344)), "Describe it."],
    "two images": ["First ", SMALL, " and then ", picture(5, (1008, 336)), ": which is larger?"],
    "the same twice": ["Compare ", SMALL, " with ", SMALL, "."],
    # For the proof that a picture matters: "one tile" with another picture.
    "another picture": ["What is in ", picture(6), "?"],
}
ENGINE_KWARGS: dict[str, Any] = {
    "enforce_eager": True,
    "max_model_len": 8192,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 4096,
    "kv_cache_memory_bytes": 256 << 20,
}
_TOKENS = 12
_TOP = 5

PartOf = Callable[[Image.Image], dict[str, Any]]
Answer = dict[str, Any]


def digest(checkpoint: Path) -> str:
    """SHA-256 over the names and bytes of a checkpoint's files."""
    sha = hashlib.sha256()
    for path in sorted(checkpoint.rglob("*")):
        if path.is_file():
            sha.update(f"{path.relative_to(checkpoint)} {path.stat().st_size}\n".encode())
            sha.update(path.read_bytes())
    return sha.hexdigest()


def greedy_request(case: str, part_of: PartOf) -> dict[str, Any]:
    """A chat request whose answer shows token ids and logprobs."""
    return {
        "messages": [user(*(c if isinstance(c, str) else part_of(c) for c in CASES[case]))],
        "max_tokens": _TOKENS,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": _TOP,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }


def forced_request(case: str, part_of: PartOf, answer: str) -> dict[str, Any]:
    """A chat request that asks for the logprobs of a given answer's tokens."""
    request = greedy_request(case, part_of)
    request["messages"].append({"role": "assistant", "content": answer})
    return request | {
        "add_generation_prompt": False,
        "continue_final_message": True,
        "max_tokens": 1,
        "prompt_logprobs": _TOP,
    }


def greedy_answer(response: dict[str, Any]) -> Answer:
    """prompt: [token id, times] runs; tokens; text; logprobs: of each token the most likely ones, {id: logprob}."""
    choice = response["choices"][0]
    steps = choice["logprobs"]["content"]
    return {
        "prompt": _runs(response["prompt_token_ids"]),
        "tokens": choice["token_ids"],
        "text": choice["message"]["content"],
        "logprobs": [
            {top["token"].removeprefix("token_id:"): round(top["logprob"], 6) for top in step["top_logprobs"]}
            for step in steps
        ],
    }


def forced_answer(response: dict[str, Any], greedy: Answer) -> list[dict[str, float]]:
    """Of each token of the forced answer {id: logprob}, the token itself and the most likely ones."""
    start = sum(times for _, times in greedy["prompt"])
    steps = response["prompt_logprobs"][start:]
    return [{token: round(entry["logprob"], 6) for token, entry in step.items()} for step in steps]


def _runs(tokens: list[int]) -> list[list[int]]:
    return [[token, len(list(run))] for token, run in groupby(tokens)]
