"""Hands embeddings to vLLM inside the process: the chat request carries tickets, vLLM's media connector redeems them.

vLLM would otherwise want each embedding as base64 text in the request. A ticket is good once, and what was not
redeemed is dropped at the end of its request.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from vllm.multimodal.media.connector import MEDIA_CONNECTOR_REGISTRY, MediaConnector

# The value of VLLM_MEDIA_CONNECTOR that selects TicketConnector.
CONNECTOR_NAME = "tessera"


class UnknownTicketError(ValueError):
    """The ticket was never issued, was redeemed already, or its request has ended."""


class Tickets:
    """Tensors that wait for vLLM, each under a ticket that nobody can guess."""

    def __init__(self) -> None:
        self._tensors: dict[str, torch.Tensor] = {}

    def __len__(self) -> int:
        return len(self._tensors)

    @contextmanager
    def issue(self, tensors: Sequence[torch.Tensor]) -> Iterator[list[str]]:
        """One ticket a tensor, valid within the `with` block."""
        tickets = [secrets.token_hex(16) for _ in tensors]
        self._tensors.update(zip(tickets, tensors, strict=True))
        try:
            yield tickets
        finally:
            for ticket in tickets:
                self._tensors.pop(ticket, None)

    def redeem(self, ticket: str) -> torch.Tensor:
        """The tensor, once. Raises UnknownTicketError."""
        try:
            return self._tensors.pop(ticket)
        except KeyError:
            raise UnknownTicketError("unknown or used ticket in place of an embedding") from None


# vLLM makes a connector for each request, so what they share is the module's.
TICKETS = Tickets()


@MEDIA_CONNECTOR_REGISTRY.register(CONNECTOR_NAME)
class TicketConnector(MediaConnector):
    """vLLM's connector, except that the text of an image embedding is a ticket."""

    def fetch_image_embedding(self, data: str) -> torch.Tensor:
        return TICKETS.redeem(data)

    async def fetch_image_embedding_async(self, data: str) -> torch.Tensor:
        return TICKETS.redeem(data)
