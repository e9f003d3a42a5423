"""Which encoder replica a shard goes to: the one with the fewest tiles outstanding.

Serve's own choice counts requests, and a request has from 1 to hundreds of tiles. The shards of one plan, which are
sent together, go to different replicas.
"""

from __future__ import annotations

from collections import Counter

from ray.serve.request_router import PendingRequest, ReplicaID, RunningReplica

from router.outstanding import OutstandingRouter


class TileRouter(OutstandingRouter):
    """For `EncoderPool.encode(tiles, images, ...)`; a call without tiles counts as one."""

    def cost(self, request: PendingRequest) -> int:
        return len(request.args[0]) if request.args else 1

    def rank(
        self, replicas: list[RunningReplica], outstanding: Counter[ReplicaID], request: PendingRequest | None
    ) -> list[RunningReplica]:
        return sorted(replicas, key=lambda replica: outstanding[replica.replica_id])
