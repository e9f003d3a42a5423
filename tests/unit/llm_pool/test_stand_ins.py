"""vLLM gets a size first and the values last."""

import pytest
import torch
from vllm.multimodal.inputs import MultiModalBatchedField, MultiModalFieldElem, MultiModalKwargsItem
from vllm.multimodal.media.connector import MEDIA_CONNECTOR_REGISTRY
from vllm.v1.serial_utils import MsgpackEncoder

from llm_pool.stand_ins import CONNECTOR_NAME, StandInConnector, put_values, stand_in


def prompt(*tensors: torch.Tensor) -> dict[str, object]:
    field = MultiModalBatchedField()
    items = [MultiModalKwargsItem({"image_embeds": MultiModalFieldElem(data=data, field=field)}) for data in tensors]
    return {"mm_kwargs": {"image": items}}


@pytest.fixture
def connector() -> StandInConnector:
    made = MEDIA_CONNECTOR_REGISTRY.load(
        CONNECTOR_NAME, media_io_kwargs=None, allowed_local_media_path="", allowed_media_domains=None
    )
    assert isinstance(made, StandInConnector)
    return made


async def test_vllm_makes_our_connector_by_its_name_and_it_knows_the_size(connector: StandInConnector) -> None:
    text = stand_in(6, 4, "bfloat16")
    for tensor in (connector.fetch_image_embedding(text), await connector.fetch_image_embedding_async(text)):
        assert (tensor.shape, tensor.dtype, tensor.device.type) == ((6, 4), torch.bfloat16, "meta")


def test_values_take_their_stand_ins_places_in_order(connector: StandInConnector) -> None:
    made = prompt(*(connector.fetch_image_embedding(stand_in(rows, 4, "float32")) for rows in (2, 3)))
    values = [torch.randn(2, 4), torch.randn(3, 4)]
    put_values(made, values)
    assert [item["image_embeds"].data for item in made["mm_kwargs"]["image"]] == values  # type: ignore[index]


@pytest.mark.parametrize(
    "values",
    [[], [torch.zeros(3, 4)], [torch.zeros(2, 4), torch.zeros(2, 4)], [torch.zeros(2, 4, dtype=torch.bfloat16)]],
    ids=["none", "another size", "one too many", "another dtype"],
)
def test_values_of_another_request_are_refused(connector: StandInConnector, values: list[torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="size|argument"):
        put_values(prompt(connector.fetch_image_embedding(stand_in(2, 4, "float32"))), values)


def test_a_stand_in_cannot_reach_the_engine(connector: StandInConnector) -> None:
    made = prompt(connector.fetch_image_embedding(stand_in(200, 400, "float32")))
    with pytest.raises((NotImplementedError, RuntimeError)):
        MsgpackEncoder().encode(made["mm_kwargs"]["image"])  # type: ignore[index]
