"""Fixtures of the encoder pool's tests: a tiny checkpoint in float32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from demo.make_checkpoint import make_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama 4 in Hugging Face format, float32 on disk; do not write to it."""
    path = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint(path, seed=0, dtype="float32")
    return path


@pytest.fixture(scope="session")
def tensors(checkpoint: Path) -> dict[str, torch.Tensor]:
    """All tensors of the tiny checkpoint by their names on disk; do not write to them."""
    return {name: tensor for shard in checkpoint.glob("*.safetensors") for name, tensor in load_file(shard).items()}
