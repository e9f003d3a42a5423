"""Stand-ins for embeddings, of which vLLM makes its prompt while the encoder is still at work on them.

Template, tokens and placeholders need the size of an embedding, not its values. So a request's image parts name a size,
vLLM's media connector makes of it a tensor that has no memory, and `put_values` puts the values in its place when the
prompt goes to the engine. One that was forgotten fails on the way there: it has nothing to send.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from vllm.multimodal.media.connector import MEDIA_CONNECTOR_REGISTRY, MediaConnector

from encoder_pool.wire import EmbeddingDtype

# The value of VLLM_MEDIA_CONNECTOR that selects StandInConnector.
CONNECTOR_NAME = "tessera"


def stand_in(rows: int, width: int, dtype: EmbeddingDtype) -> str:
    """What an image part holds where vLLM expects the text of an embedding [rows, width]."""
    return json.dumps([rows, width, dtype])


def put_values(prompt: Mapping[str, Any], values: Sequence[torch.Tensor]) -> None:
    """Puts the embedding of each image of a prompt, as vLLM's renderer leaves it, in the place of its stand-in.

    Raises ValueError where the images are not those that the prompt was made for.
    """
    items = prompt["mm_kwargs"]["image"]
    for item, value in zip(items, values, strict=True):
        field = item["image_embeds"]
        if (field.data.shape, field.data.dtype) != (value.shape, value.dtype):
            raise ValueError("an embedding is not of the size for which the prompt was made")
        field.data = value


@MEDIA_CONNECTOR_REGISTRY.register(CONNECTOR_NAME)
class StandInConnector(MediaConnector):
    """vLLM's connector, except that the text of an image embedding is a `stand_in`."""

    def fetch_image_embedding(self, data: str) -> torch.Tensor:
        rows, width, dtype = json.loads(data)
        return torch.empty(rows, width, dtype=getattr(torch, dtype), device="meta")

    async def fetch_image_embedding_async(self, data: str) -> torch.Tensor:
        return self.fetch_image_embedding(data)
