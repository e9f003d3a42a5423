"""What the Router's unit tests share: a checkpoint's small files, without weights."""

from __future__ import annotations

import pytest

from encoder_pool.settings import ModelSettings


@pytest.fixture(scope="session")
def model(tiny_checkpoint) -> ModelSettings:
    return ModelSettings(source=str(tiny_checkpoint), served_names=("demo",))
