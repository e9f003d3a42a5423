"""Attention of a fresh encoder: every head looks where it is told to."""

from __future__ import annotations

import torch
from transformers import Llama4VisionConfig
from transformers.models.llama4.modeling_llama4 import Llama4VisionModel

from demo.local_attention import localize_attention


def test_heads_look_in_their_directions():
    torch.manual_seed(0)
    config = Llama4VisionConfig(
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=336,
        patch_size=14,
        projector_input_dim=32,
        projector_output_dim=32,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        attn_implementation="eager",
    )
    encoder = Llama4VisionModel(config).eval()
    localize_attention(encoder)
    seen = []
    for layer in encoder.model.layers:
        layer.self_attn.register_forward_hook(lambda _module, _inputs, output: seen.append(output[1]))
    with torch.inference_mode():
        encoder(torch.rand(1, 3, 336, 336) * 2 - 1)
    # From the patch at row 12, column 10.
    steps = {0: [(0, 1), (0, -1), (1, 0), (-1, 0)], 1: [(1, 1), (-1, -1), (-1, 1), (1, -1)]}
    for layer, reach in ((0, 1), (1, 1), (2, 2)):
        for head, (down, right) in enumerate(steps[layer % 2]):
            looked_at = seen[layer][0, head, 12 * 24 + 10, :-1].argmax().item()
            assert divmod(looked_at, 24) == (12 + down * reach, 10 + right * reach), (layer, head)
