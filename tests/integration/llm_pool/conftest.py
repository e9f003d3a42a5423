"""One decoder for all tests of this room that do not need one of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from encoder_pool.settings import ModelSettings
from llm_pool.settings import LLMSettings
from tests.integration.llm_pool import parity
from tests.integration.llm_pool.chain import Chain, running_chain

SETTINGS = LLMSettings(
    gpus_per_node=0,
    engine_kwargs=parity.ENGINE_KWARGS,
    frontend_kwargs={"enable_auto_tool_choice": True, "tool_call_parser": "llama4_pythonic"},
)


@pytest.fixture(scope="session")
def chain(tiny_checkpoint: Path) -> Iterator[Chain]:
    """Encoder and decoder in float32, where parity is exact enough to see an error of order or place."""
    model = ModelSettings(source=str(tiny_checkpoint), dtype="float32", served_names=("tiny", "tiny-alias"))
    with running_chain(model, SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def bfloat16_chain(tiny_checkpoint: Path) -> Iterator[Chain]:
    with running_chain(ModelSettings(source=str(tiny_checkpoint), dtype="bfloat16"), SETTINGS) as running:
        yield running
