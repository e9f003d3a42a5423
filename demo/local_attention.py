"""How the encoder's attention starts: every head looks a few patches away in one direction, as a convolution would.

From uniform attention a small vision transformer takes thousands of steps to find that neighbours matter; from here it
recognizes glyphs after hundreds. Only the biases of queries and keys are set, which the rotary embedding turns by the
patch's place: Re(q e^{if(p)} conj(k e^{if(p')})) is largest where p' - p is the phase between q and k, over f.
"""

from __future__ import annotations

import torch
from transformers import Llama4VisionConfig
from transformers.models.llama4.modeling_llama4 import Llama4VisionModel

# Directions (x, y) of the heads of even and of odd layers.
_DIRECTIONS = (((1, 0), (-1, 0), (0, 1), (0, -1)), ((1, 1), (-1, -1), (1, -1), (-1, 1)))
# Patches that the heads of each pair of layers look away.
_REACH = (1, 2, 4)
# Length of the bias of a query and a key, at each of the frequencies used.
_STRENGTH = 3.0
_FREQUENCIES = 3


@torch.no_grad()
def localize_attention(encoder: Llama4VisionModel) -> None:
    """Sets the biases of queries and keys of every layer; the head width must be a multiple of 4."""
    config: Llama4VisionConfig = encoder.config
    head_width = config.hidden_size // config.num_attention_heads
    pairs = head_width // 4  # complex numbers of a head that turn with x; as many turn with y
    frequencies = config.rope_parameters["rope_theta"] ** -(torch.arange(pairs) / pairs)
    used = torch.arange(pairs) < _FREQUENCIES
    for index, layer in enumerate(encoder.model.layers):
        reach = _REACH[min(index // 2, len(_REACH) - 1)]
        queries = torch.zeros(config.num_attention_heads, 2, pairs, 2)
        keys = torch.zeros_like(queries)
        keys[..., used, 0] = _STRENGTH
        for head in range(config.num_attention_heads):
            for axis, direction in enumerate(_DIRECTIONS[index % 2][head % 4]):
                phase = frequencies[used] * direction * reach
                queries[head, axis, used, 0] = _STRENGTH * phase.cos()
                queries[head, axis, used, 1] = _STRENGTH * phase.sin()
        layer.self_attn.q_proj.bias.copy_(queries.flatten())
        layer.self_attn.k_proj.bias.copy_(keys.flatten())
