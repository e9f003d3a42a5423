"""Embeddings from an encoder to a decoder, by reference: the only file that uses Serve's private handle API.

Written for Ray 2.60 (pinned); tests/integration/router/test_handoff.py fails when what is used here moves.

An encoder yields one array for each image shard and one small EmbeddingMeta last. The Router takes the references of
the arrays without awaiting them, since awaiting a reference copies its value to the Router's node. They are known as
soon as a replica has taken the call, and may go to a decoder then. The Router awaits the metadata, which comes last, so
that it learns every error of the encoder, and then the mere presence of the arrays.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from opentelemetry import context as otel_context
from ray import ObjectRef
from ray.exceptions import ObjectRefStreamEndOfStreamError
from ray.serve import context as serve_context
from ray.serve._private.tracing_utils import setup_tracing
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from encoder_pool.wire import EmbeddingMeta, HandOff, ImageShard
from llm_pool.reply import Endpoint

# How often a call that waits for a replica looks whether there still is one: a handle without replicas never fails.
LOOK_S = 0.25


class PoolGoneError(Exception):
    """The pool has no living replica."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Embeddings that exist somewhere in the object store; refs: one a shard, in order, owned by this process."""

    meta: EmbeddingMeta
    refs: list[ObjectRef]


def by_reference(handle: DeploymentHandle) -> DeploymentHandle:
    """`handle` for streaming calls whose values pass by reference, whatever Serve's environment variables say."""
    return handle.options(stream=True, _by_reference=True)


def replica_count(handle: DeploymentHandle) -> int:
    """The running replicas that the controller has told `handle` of; about a second after one died, it tells that."""
    router = handle._router
    request_router = None if router is None else router._asyncio_router._request_router
    return 0 if request_router is None else len(request_router.curr_replicas)


def detached_context(request_id: str) -> contextvars.Context:
    """A context for work that may outlive the request it was begun for, whose logs and spans it still belongs to.

    Serve cancels, with a request, every call that was made in that request's context.
    """
    detached = contextvars.Context()
    detached.run(serve_context._serve_request_context.set, serve_context._RequestContext(request_id=request_id))
    detached.run(otel_context.attach, otel_context.get_current())
    return detached


def set_up_tracing(actor: str) -> None:
    """In an actor that is no replica; Serve does it in replicas only. Handles then pass a recorded span on.

    Serve's environment variables say where spans go, to files with the actor's name among others.
    """
    setup_tracing(actor, ray.get_runtime_context().get_actor_id())


async def encode(
    handle: DeploymentHandle,
    tiles: NDArray[np.uint8],
    shards: Sequence[ImageShard],
    timeout_s: float,
    promise: Callable[[list[ObjectRef]], None] = lambda refs: None,
) -> Encoded:
    """Encodes on one replica, which drops it when it has not begun after `timeout_s`, or when this is cancelled.

    promise: told the references once a replica has taken the call; what awaits them fails where this fails.
    Raises PoolGoneError, RayActorError (the replica died), and what the encoder raised, as RayTaskError of that type.
    """
    response = handle.encode.remote(tiles, list(shards), timeout_s)
    finished = False
    try:
        generator = await _assigned(handle, response)
        *refs, meta_ref = generator._get_next_ref_n(len(shards) + 1)
        promise(refs)
        try:
            meta = await meta_ref
        except ObjectRefStreamEndOfStreamError:
            await _raise_last(refs)
            raise RuntimeError("an encoder yielded fewer arrays than it was asked for") from None
        for ref in refs:
            await _exists(ref)
        generator._consume_next_ref_n(len(shards) + 1)
        finished = True
        return Encoded(meta, refs)
    finally:
        # Cancelling this task alone would let the replica go on.
        if not finished:
            response.cancel()


async def decode(
    handle: DeploymentHandle,
    endpoint: Endpoint,
    body: dict[str, Any],
    hand_off: HandOff | None,
    request_id: str,
    refs: Sequence[ObjectRef],
) -> AsyncGenerator[Any, None]:
    """The decoder's answer to a request of `endpoint`, item by item; leaving the generator early cancels it there.

    Raises PoolGoneError, RayActorError (the replica died).
    """
    # As arguments of their own Ray would resolve the references first, and the call would wait for the encoder.
    response = handle.answer.remote(endpoint, body, hand_off, request_id, list(refs))
    finished = False
    try:
        await _assigned(handle, response)
        async for item in response:
            yield item
        finished = True
    finally:
        if not finished:
            response.cancel()


async def _assigned(handle: DeploymentHandle, response: DeploymentResponseGenerator) -> Any:
    """The ObjectRefGenerator of a call, once a replica took it. Raises PoolGoneError when none is left to take it."""
    assignment = asyncio.ensure_future(response._to_object_ref_gen())
    # If this is cancelled meanwhile, nobody asks what became of it.
    assignment.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        while not assignment.done():
            await asyncio.wait([assignment], timeout=LOOK_S)
            if not assignment.done() and not replica_count(handle):
                raise PoolGoneError
        return assignment.result()
    finally:
        assignment.cancel()


async def _raise_last(refs: list[ObjectRef]) -> None:
    """A stream that ended early: its last item that was written is the error."""
    for ref in reversed(refs):
        try:
            await ref
        except ObjectRefStreamEndOfStreamError:
            continue
        return


async def _exists(ref: ObjectRef) -> None:
    """Waits until the object exists somewhere and fetches nothing.

    `ref._ready()` would do the same, but leaves a reference cycle that pins the object until a garbage collection.
    """
    loop = asyncio.get_running_loop()
    present: asyncio.Future[None] = loop.create_future()
    unsubscribe = ref._on_ready(lambda _: loop.call_soon_threadsafe(_resolve, present))
    try:
        await present
    finally:
        unsubscribe()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
