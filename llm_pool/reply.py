"""What a decoder is asked and what it answers through its Serve handle; plain types, no vLLM import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# What a decoder answers: the endpoint of that name, `chat` for /v1/chat/completions.
Endpoint = Literal["chat", "completions", "responses", "tokenize", "detokenize"]


@dataclass(frozen=True, slots=True)
class Reply:
    """The first item of every answer; for a stream (`stream=True`) more text chunks (`str`) follow.

    status: HTTP status. Anything but 200 comes alone, with an OpenAI error body.
    stream: True for server-sent events.
    body: JSON text, or the first chunk of the stream ("data: {...}\\n\\n", one or more whole events).
    retryable: True where it is this replica's fault, and another may answer.
    lost: True where an embedding did not arrive: it was lost, or its encoder failed.
    seconds: from the request's arrival to this, the wait for its embeddings included.
    """

    status: int
    stream: bool
    body: str
    retryable: bool = False
    lost: bool = False
    seconds: float = 0.0
