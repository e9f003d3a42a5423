"""What each replica of a pool has to do for this Router, counted where the choice is made.

Statistics that replicas report are polled too seldom, so each Router counts what it has sent and not got back. A choice
counts at once, before the replica has taken the call: so calls that are sent together see each other.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import Any

from ray.serve.request_router import FIFOMixin, PendingRequest, ReplicaID, RequestRouter, RunningReplica


@dataclass(slots=True)
class _Sent:
    replica: ReplicaID
    cost: int
    request: PendingRequest | None  # None once a replica has taken it


class OutstandingRouter(FIFOMixin, RequestRouter):
    """A request router that ranks replicas by what is outstanding on each.

    First in, first out: calls made while one request is served share its internal id, so an id cannot tell who waits.
    """

    def initialize_state(self, **kwargs: Any) -> None:
        self._sent: dict[str, _Sent] = {}

    @abstractmethod
    def cost(self, request: PendingRequest) -> int:
        """What a call counts for."""

    @abstractmethod
    def rank(
        self, replicas: list[RunningReplica], outstanding: Counter[ReplicaID], request: PendingRequest | None
    ) -> list[RunningReplica]:
        """All replicas, the best one first. outstanding: the costs of other calls, by replica."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """All candidates, one a rank."""
        ranked = self.rank(candidate_replicas, self._outstanding(pending_request), pending_request)
        if pending_request is not None and ranked:
            # Every replica was offered; without this Serve asks again at once, and for ever, while none accepts.
            pending_request.routing_context.should_backoff = True
            chosen = _Sent(ranked[0].replica_id, self.cost(pending_request), pending_request)
            self._sent[pending_request.metadata.internal_request_id] = chosen
        return [[replica] for replica in ranked]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        sent = _Sent(replica_id, self.cost(pending_request), None)
        self._sent[pending_request.metadata.internal_request_id] = sent

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        self._sent.pop(internal_request_id, None)

    def _outstanding(self, asking: PendingRequest | None) -> Counter[ReplicaID]:
        """Costs by replica, without that of `asking` itself, which is being chosen for once more."""
        own = None if asking is None else asking.metadata.internal_request_id
        costs: Counter[ReplicaID] = Counter()
        for name, sent in list(self._sent.items()):
            if sent.request is not None and sent.request.future.cancelled():
                del self._sent[name]  # its caller left before a replica took it
            elif name != own:
                costs[sent.replica] += sent.cost
        return costs
