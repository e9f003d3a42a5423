"""Which encoder replica a shard goes to: the one with the fewest tiles outstanding.

Serve's own choice counts requests, and a request has from 1 to hundreds of tiles. Statistics that replicas report are
polled too seldom, so each Router counts what it has sent and not got back. A choice counts at once, before the replica
has taken the shard: so the shards of one plan, which are sent together, go to different replicas.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ray.serve.request_router import FIFOMixin, PendingRequest, ReplicaID, RequestRouter, RunningReplica


@dataclass(slots=True)
class _Sent:
    replica: ReplicaID
    tiles: int
    request: PendingRequest | None  # None once a replica has taken it


class TileRouter(FIFOMixin, RequestRouter):
    """For `EncoderPool.encode(tiles, images)`; a call without tiles counts as one.

    First in, first out: calls made while one request is served share its internal id, so an id cannot tell who waits.
    """

    def initialize_state(self, **kwargs: Any) -> None:
        self._sent: dict[str, _Sent] = {}

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """All candidates, the one with the fewest outstanding tiles first."""
        outstanding = self._outstanding(pending_request)
        ranked = sorted(candidate_replicas, key=lambda replica: outstanding[replica.replica_id])
        if pending_request is not None and ranked:
            # Every replica was offered; without this Serve asks again at once, and for ever, while none accepts.
            pending_request.routing_context.should_backoff = True
            chosen = _Sent(ranked[0].replica_id, _tiles(pending_request), pending_request)
            self._sent[pending_request.metadata.internal_request_id] = chosen
        return [[replica] for replica in ranked]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        sent = _Sent(replica_id, _tiles(pending_request), None)
        self._sent[pending_request.metadata.internal_request_id] = sent

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        self._sent.pop(internal_request_id, None)

    def _outstanding(self, asking: PendingRequest | None) -> Counter[ReplicaID]:
        """Tiles by replica, without those of `asking` itself, which is being chosen for once more."""
        own = None if asking is None else asking.metadata.internal_request_id
        tiles: Counter[ReplicaID] = Counter()
        for name, sent in list(self._sent.items()):
            if sent.request is not None and sent.request.future.cancelled():
                del self._sent[name]  # its caller left before a replica took it
            elif name != own:
                tiles[sent.replica] += sent.tiles
        return tiles


def _tiles(request: PendingRequest) -> int:
    return len(request.args[0]) if request.args else 1
