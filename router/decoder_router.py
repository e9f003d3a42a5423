"""Which decoder replica a request goes to: the one that has seen its beginning, unless that has too much to do.

vLLM keeps the keys and values of prompts that it has seen, and finds them again by their beginning. Every Router ranks
the decoders in the same way for the same beginning (rendezvous hashing, which moves few conversations when a decoder
comes or goes), and passes by those whose load is well above the average (bounded loads: Mirrokni, Thorup and
Zadimoghaddam, Consistent Hashing with Bounded Loads, 2018).
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from blake3 import blake3
from ray.serve.request_router import PendingRequest, ReplicaID, RunningReplica

from encoder_pool.wire import HandOff
from llm_pool.placeholders import image_number, is_placeholder
from router.outstanding import OutstandingRouter

# A decoder has too much to do above this multiple of the average, and above this many requests: an engine batches the
# first few at hardly any cost, less than a prompt that has to be computed anew.
MAX_LOAD = 1.25
FREE_LOAD = 8
# Endpoints whose prompts leave something in a decoder's cache.
GENERATING = ("chat", "completions", "responses")
PROMPT_CHARACTERS = 1024


class PrefixRouter(OutstandingRouter):
    """For `LLMPool.answer(endpoint, body, hand_off, ...)`; calls that generate nothing go to the least busy replica."""

    def cost(self, request: PendingRequest) -> int:
        return 1

    def rank(
        self, replicas: list[RunningReplica], outstanding: Counter[ReplicaID], request: PendingRequest | None
    ) -> list[RunningReplica]:
        by_load = sorted(replicas, key=lambda replica: outstanding[replica.replica_id])
        if request is None or request.metadata.call_method != "answer" or not replicas:
            return by_load
        endpoint, body, hand_off = request.args[:3]
        if endpoint not in GENERATING:
            return by_load
        limit = max(FREE_LOAD, MAX_LOAD * (outstanding.total() + 1) / len(replicas))
        beginning = beginning_of(body, hand_off)
        affine = sorted(replicas, key=lambda replica: _rendezvous(beginning, replica))
        chosen = next((replica for replica in affine if outstanding[replica.replica_id] < limit), None)
        return sorted(by_load, key=lambda replica: replica is not chosen)


def beginning_of(body: dict[str, Any], hand_off: HandOff | None) -> bytes:
    """A digest of what a conversation's requests have in common: the prompt as far as its first picture, or else as far
    as the end of its first user message. Tools count too, since templates put them first. Of a prompt that is no
    conversation: a digest of its first characters.
    """
    digest = blake3(json.dumps([body.get("tools"), body.get("instructions")]).encode())
    items = body.get("messages", body.get("input"))
    if not isinstance(items, list):
        prompt = items if items is not None else body.get("prompt")
        return digest.update(json.dumps(prompt)[:PROMPT_CHARACTERS].encode()).digest()
    for item in items:
        content = item.get("content")
        for part in content if isinstance(content, list) else [content]:
            number = image_number(part) if is_placeholder(part) else None
            if hand_off is not None and number is not None:
                return digest.update(hand_off.images[number].hash.encode()).digest()
            digest.update(json.dumps([item.get("role"), part]).encode())
        if item.get("role") == "user":
            break
    return digest.digest()


def _rendezvous(beginning: bytes, replica: RunningReplica) -> bytes:
    return blake3(beginning + replica.replica_id.unique_id.encode()).digest()
