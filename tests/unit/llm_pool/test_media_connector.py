"""Tickets are good once, and only while their request runs."""

import pytest
import torch
from vllm.multimodal.media.connector import MEDIA_CONNECTOR_REGISTRY

from llm_pool.media_connector import CONNECTOR_NAME, TICKETS, TicketConnector, Tickets, UnknownTicketError


def test_a_ticket_is_good_once() -> None:
    tickets = Tickets()
    tensors = [torch.zeros(1), torch.ones(1)]
    with tickets.issue(tensors) as names:
        assert len(set(names)) == 2
        assert [tickets.redeem(name) for name in names] == tensors
        with pytest.raises(UnknownTicketError):
            tickets.redeem(names[0])


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_not_redeemed_is_dropped_with_its_request(fails: bool) -> None:
    tickets = Tickets()
    try:
        with tickets.issue([torch.zeros(1)] * 3) as names:
            tickets.redeem(names[1])
            assert len(tickets) == 2
            if fails:
                raise RuntimeError
    except RuntimeError:
        pass
    assert len(tickets) == 0
    with pytest.raises(UnknownTicketError):
        tickets.redeem(names[0])


def test_one_tensor_may_be_handed_over_twice() -> None:
    tickets = Tickets()
    tensor = torch.zeros(1)
    with tickets.issue([tensor, tensor]) as names:
        assert tickets.redeem(names[0]) is tickets.redeem(names[1]) is tensor


async def test_vllm_makes_our_connector_by_its_name_and_redeems_through_it() -> None:
    connector = MEDIA_CONNECTOR_REGISTRY.load(
        CONNECTOR_NAME, media_io_kwargs=None, allowed_local_media_path="", allowed_media_domains=None
    )
    assert isinstance(connector, TicketConnector)
    tensor = torch.zeros(1)
    with TICKETS.issue([tensor, tensor]) as (first, second):
        assert connector.fetch_image_embedding(first) is tensor
        assert await connector.fetch_image_embedding_async(second) is tensor
    with pytest.raises(UnknownTicketError):
        await connector.fetch_image_embedding_async("no ticket")
