"""The eager runner joins, chunks and splits; it is checked against the model called directly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from encoder_pool.model import Llama4VisionEncoder
from encoder_pool.ops import TorchOps
from encoder_pool.runner import EagerRunner
from encoder_pool.weights import assemble, dummy_tensors
from tests.vision_reference import DEMO, random_tiles, relative_error

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_items_come_back_in_order_and_in_the_carrier_dtype(dtype: torch.dtype) -> None:
    tensors = dict(dummy_tensors(DEMO, 0))
    weights = assemble(DEMO, tensors.__getitem__, dtype, CPU)
    model = Llama4VisionEncoder(DEMO, weights, TorchOps(DEMO, dtype, CPU))
    items = [random_tiles(count) for count in (1, 5, 2)]
    items[1].setflags(write=False)  # as arrays from the object store are
    encoded = EagerRunner(model, chunk_tiles=3).encode(items)
    assert encoded.finite == [True, True, True]
    for item, rows in zip(items, encoded.rows, strict=True):
        assert rows.dtype == (np.uint16 if dtype == torch.bfloat16 else np.float32)
        values = torch.from_numpy(rows).view(dtype)
        expected = model(torch.from_numpy(item.copy()))
        assert relative_error(values, expected.float()) < (1e-5 if dtype == torch.float32 else 1e-2)


def test_non_finite_values_are_seen_item_by_item() -> None:
    tensors = dict(dummy_tensors(DEMO, 0))
    # Two neighbouring pixels of a patch overflow where both are bright, and cancel where they are opposite.
    patch = tensors["vision_model.patch_embedding.linear.weight"].zero_()
    patch[:, :2] = 3e38
    weights = assemble(DEMO, tensors.__getitem__, torch.float32, CPU)
    model = Llama4VisionEncoder(DEMO, weights, TorchOps(DEMO, torch.float32, CPU))
    striped, bright = (np.full((1, 3, 336, 336), 255, np.uint8) for _ in range(2))
    striped[..., ::2] = 0
    assert EagerRunner(model).encode([striped, bright, striped]).finite == [True, False, True]
