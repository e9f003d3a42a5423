"""The demo models' configuration and processor: Llama 4 with its real image geometry, everything else small.

336-pixel tiles, patches of 14 pixels, 144 embeddings a tile, up to 16 tiles and the global one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import (
    Llama4Config,
    Llama4ImageProcessor,
    Llama4Processor,
    Llama4TextConfig,
    Llama4VisionConfig,
    PreTrainedTokenizerFast,
)

from demo.tokenizer import BOS, EOM, EOT, IMAGE_END, IMAGE_START, PAD, PATCH
from llm_pool.chat_template import CHAT_TEMPLATE

TILE_SIZE = 336
PATCH_SIZE = 14
# Pixel shuffle joins 2x2 patches into one embedding.
TOKENS_PER_SIDE = TILE_SIZE // PATCH_SIZE // 2
TOKENS_PER_TILE = TOKENS_PER_SIDE**2
MAX_TILES = 16

HEAD_DIM = 32


@dataclass(frozen=True)
class Size:
    """What may differ between two demo models; widths are multiples of 32, the width of an attention head."""

    text_width: int
    text_layers: int
    text_kv_heads: int
    expert_width: int
    experts: int
    nope_interval: int
    qk_norm: bool
    vision_width: int
    vision_layers: int
    adapter_width: int


def build_config(size: Size, tokenizer: PreTrainedTokenizerFast, dtype: str) -> Llama4Config:
    """The configuration of `Llama4ForConditionalGeneration`; every `nope_interval`-th text layer has no rotary
    embedding and sees everything, the others are chunked.

    dtype: of the weights on disk, "bfloat16" or "float32".
    """

    def token(text: str) -> int:
        return tokenizer.convert_tokens_to_ids(text)

    text: dict[str, Any] = {
        "vocab_size": -(-len(tokenizer) // 64) * 64,
        "hidden_size": size.text_width,
        "num_hidden_layers": size.text_layers,
        "num_attention_heads": size.text_width // HEAD_DIM,
        "num_key_value_heads": size.text_kv_heads,
        "head_dim": HEAD_DIM,
        "intermediate_size": size.expert_width,
        "intermediate_size_mlp": size.expert_width,
        "num_local_experts": size.experts,
        "num_experts_per_tok": 1,
        "no_rope_layer_interval": size.nope_interval,
        "use_qk_norm": size.qk_norm,
        "attention_chunk_size": 8192,
        "max_position_embeddings": 131072,
        "bos_token_id": token(BOS),
        "eos_token_id": [token(EOT), token(EOM)],
        "pad_token_id": token(PAD),
        "dtype": dtype,
    }
    vision: dict[str, Any] = {
        "hidden_size": size.vision_width,
        "intermediate_size": 4 * size.vision_width,  # also the width that pixel shuffle gives: Llama 4 ties them
        "num_hidden_layers": size.vision_layers,
        "num_attention_heads": size.vision_width // HEAD_DIM,
        "image_size": TILE_SIZE,
        "patch_size": PATCH_SIZE,
        "projector_input_dim": size.adapter_width,
        "projector_output_dim": size.adapter_width,
        "vision_output_dim": size.adapter_width,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "dtype": dtype,
    }
    return Llama4Config(
        text_config=Llama4TextConfig(**text),
        vision_config=Llama4VisionConfig(**vision),
        boi_token_index=token(IMAGE_START),
        eoi_token_index=token(IMAGE_END),
        image_token_index=token(PATCH),
        dtype=dtype,
    )


def build_processor(tokenizer: PreTrainedTokenizerFast) -> Llama4Processor:
    """Llama 4's own image and prompt processing around the demo tokenizer, with the chat template of the decoders."""
    image_processor = Llama4ImageProcessor(
        size={"height": TILE_SIZE, "width": TILE_SIZE}, max_patches=MAX_TILES, resize_to_max_canvas=False
    )
    return Llama4Processor(
        image_processor=image_processor,
        tokenizer=tokenizer,
        patch_size=PATCH_SIZE,
        chat_template=CHAT_TEMPLATE.read_text(),
    )
