"""The fused encoder against vLLM's own vision tower, eager and in vLLM's graphs, on the same weights."""

from __future__ import annotations

import pytest
import torch

from encoder_pool.model import Llama4VisionEncoder
from tests.vision_reference import SCOUT, make_reference, random_tiles, relative_error

pytest.importorskip("vllm")


def test_we_agree_with_vllm_and_are_no_less_exact(
    scout: Llama4VisionEncoder, scout_tensors: dict[str, torch.Tensor], device: torch.device
) -> None:
    from benchmarks.encoder_baselines import VllmEncoder, normalize

    vllm = VllmEncoder(SCOUT, scout_tensors, device, max_tokens=2448)
    graphs = vllm.capture([5 * 144])
    host = random_tiles(5)
    tiles = torch.from_numpy(host).to(device)
    pixels = normalize(tiles, torch.bfloat16)
    ours, expected = scout(tiles), make_reference(SCOUT, scout_tensors)(host)
    for theirs in (vllm.eager(pixels), torch.cat(vllm.graph(graphs, pixels, [5]))):
        assert relative_error(ours, theirs.float()) <= 3e-2
        assert relative_error(ours, expected) <= relative_error(theirs, expected)
