"""The subclass of vLLM's Llama 4, as far as it goes without an engine; parity tests show the rest."""

import inspect

import pytest
import torch
from vllm.model_executor.models.mllama4 import (
    Llama4ForConditionalGeneration,
    Mllama4MultiModalProcessor,
    Mllama4ProcessingInfo,
)
from vllm.multimodal.parse import DictEmbeddingItems, MultiModalDataParser

from llm_pool import vllm_model

PER_TILE = 4


def parsed(tiles: list[int], rows: int | None = None) -> DictEmbeddingItems:
    parser = vllm_model.EmbeddingParser(PER_TILE, expected_hidden_size=3)
    data = {
        "image_embeds": torch.arange((rows or sum(tiles) * PER_TILE) * 3).view(-1, 3),
        "patches_per_image": torch.tensor(tiles),
        "aspect_ratios": torch.tensor([[1, max(1, count - 1)] for count in tiles]),
    }
    return parser.parse_mm_data({"image": data})["image"]


@pytest.mark.parametrize("tiles", [[1], [4], [1, 5, 17], [3, 3]])
def test_the_merged_embeddings_are_cut_into_images(tiles: list[int]) -> None:
    items = parsed(tiles)
    assert items.get_count() == len(tiles)
    start = 0
    for index, count in enumerate(tiles):
        item = items.get(index)
        stop = start + count * PER_TILE
        assert torch.equal(item["image_embeds"], torch.arange(start * 3, stop * 3).view(-1, 3))
        assert item["aspect_ratios"].tolist() == [1, max(1, count - 1)]
        start = stop


def test_embeddings_without_their_grid_are_refused() -> None:
    parser = vllm_model.EmbeddingParser(PER_TILE)
    with pytest.raises(ValueError, match="aspect_ratios"):
        parser.parse_mm_data(
            {"image": {"image_embeds": torch.zeros(PER_TILE, 3), "patches_per_image": torch.tensor([1])}}
        )


@pytest.mark.parametrize(
    ("ours", "stock", "name"),
    [
        (vllm_model.EmbeddingParser, MultiModalDataParser, "_parse_image_data"),
        (vllm_model.EmbeddingInfo, Mllama4ProcessingInfo, "get_data_parser"),
        (vllm_model.EmbeddingInfo, Mllama4ProcessingInfo, "get_mm_max_tokens_per_item"),
        (vllm_model.EmbeddingProcessor, Mllama4MultiModalProcessor, "_get_mm_fields_config"),
        (vllm_model.Llama4FromEmbeddings, Llama4ForConditionalGeneration, "embed_multimodal"),
    ],
)
def test_what_we_override_is_still_there(ours: type, stock: type, name: str) -> None:
    mine, theirs = (list(inspect.signature(getattr(cls, name)).parameters) for cls in (ours, stock))
    assert mine == theirs
    assert getattr(ours, name) is not getattr(stock, name)


def test_what_we_call_is_still_there() -> None:
    for name in (
        "get_patch_per_chunk",
        "get_max_num_tiles",
        "_get_expected_hidden_size",
        "allow_missing_mm_embeddings",
    ):
        assert hasattr(Mllama4ProcessingInfo, name)
    assert hasattr(Llama4ForConditionalGeneration, "get_image_patches_per_chunk")
    assert hasattr(MultiModalDataParser, "embedding_field_sets")
