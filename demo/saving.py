"""Writes a demo model in Hugging Face format, in several shards as published checkpoints are."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import GenerationConfig, Llama4ForConditionalGeneration, PreTrainedTokenizerFast

from demo.architecture import build_processor

SHARD_BYTES = 600_000


def save_checkpoint(
    model: Llama4ForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    directory: Path,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Writes weights (in the dtype of `model.config`), configurations, tokenizer, processor and chat template.

    Tensors are written in the model's order, vision first: the last shards hold text weights alone. The parameters
    of `model` are cast in place.
    """
    directory.mkdir(parents=True, exist_ok=True)
    text = model.config.text_config
    model.generation_config = GenerationConfig(
        bos_token_id=text.bos_token_id,
        eos_token_id=text.eos_token_id,
        pad_token_id=text.pad_token_id,
    )
    dtype = getattr(torch, str(model.config.dtype).removeprefix("torch."))
    for parameter in model.parameters():  # not model.to(): it would cast the complex rotary buffer too
        parameter.data = parameter.data.to(dtype)
    model.save_pretrained(directory, max_shard_size=shard_bytes)
    build_processor(tokenizer).save_pretrained(directory)
