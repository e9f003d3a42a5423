"""Llama 4 for vLLM with images given as embeddings: a subclass of vLLM's own model; text, weights, LoRA are its own.

Nothing is built of the vision tower when the engine runs with `limit_mm_per_prompt={"image": 0}`. Every import from
vLLM's multimodal internals is in this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import BatchFeature
from vllm.model_executor.models.mllama4 import (
    Llama4ForConditionalGeneration,
    Mllama4DummyInputsBuilder,
    Mllama4MultiModalProcessor,
    Mllama4ProcessingInfo,
)
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.parse import DictEmbeddingItems, MultiModalDataParser


def image_fields(data: Mapping[str, Any], tokens_per_tile: int) -> dict[str, MultiModalFieldConfig]:
    """How vLLM cuts the merged data of a request into its images.

    data: `patches_per_image` [images] (tiles of each, vLLM's name for them) sizes the others: `image_embeds`
    [sum(tiles) * tokens_per_tile, width], `pixel_values` [sum(tiles), 3, side, side], `aspect_ratios` [images, 2].
    """
    tiles = data.get("patches_per_image", torch.empty(0, dtype=torch.long)).flatten()
    return {
        "pixel_values": MultiModalFieldConfig.flat_from_sizes("image", tiles),
        "image_embeds": MultiModalFieldConfig.flat_from_sizes("image", tiles * tokens_per_tile),
        "patches_per_image": MultiModalFieldConfig.batched("image", keep_on_cpu=True),
        "aspect_ratios": MultiModalFieldConfig.batched("image", keep_on_cpu=True),
    }


class EmbeddingParser(MultiModalDataParser):
    """Takes images as a map of tensors, which vLLM's own Llama 4 does not."""

    embedding_fields = {  # noqa: RUF012 - vLLM declares it as a plain attribute
        "image": {"image_embeds": "values", "aspect_ratios": "metadata", "patches_per_image": "metadata"}
    }

    def __init__(self, tokens_per_tile: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._tokens_per_tile = tokens_per_tile

    def _parse_image_data(self, data: Any) -> Any:
        if not isinstance(data, dict):
            return super()._parse_image_data(data)
        required, optional = self.embedding_field_sets("image")
        return DictEmbeddingItems(
            data,
            modality="image",
            required_fields=required,
            optional_fields=optional,
            fields_factory=lambda fields: image_fields(fields, self._tokens_per_tile),
        )


class EmbeddingInfo(Mllama4ProcessingInfo):
    @property
    def tokens_per_tile(self) -> int:
        return self.get_patch_per_chunk(self.get_hf_config().vision_config)

    def get_data_parser(self) -> EmbeddingParser:
        return EmbeddingParser(
            self.tokens_per_tile,
            expected_hidden_size=self._get_expected_hidden_size(),
            allow_missing_mm_embeddings=self.allow_missing_mm_embeddings,
        )

    def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Mapping[str, int]) -> Mapping[str, int]:
        # Known without the picture that vLLM would otherwise run through the image processor at start.
        return {"image": (self.get_max_num_tiles() + 1) * self.tokens_per_tile}


class EmbeddingProcessor(Mllama4MultiModalProcessor):
    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, object]
    ) -> Mapping[str, MultiModalFieldConfig]:
        return image_fields(hf_inputs, self.info.tokens_per_tile)


@MULTIMODAL_REGISTRY.register_processor(EmbeddingProcessor, info=EmbeddingInfo, dummy_inputs=Mllama4DummyInputsBuilder)
class Llama4FromEmbeddings(Llama4ForConditionalGeneration):
    def embed_multimodal(self, **kwargs: Any) -> list[torch.Tensor]:
        """One tensor [tiles * tokens_per_tile, width] an image, in the engine's dtype."""
        embeddings: torch.Tensor = kwargs["image_embeds"]
        sizes = kwargs["patches_per_image"].flatten() * self.get_image_patches_per_chunk()
        return list(embeddings.to(self.vllm_config.model_config.dtype).split(sizes.tolist()))
