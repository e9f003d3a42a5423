"""A tiny Llama 4 with random weights, for tests: `python -m demo.make_checkpoint DIR [--seed 0]`.

Real image geometry, MoE text model with chunked and NoPE layers, about 2 MB. It knows nothing, but what it writes
depends visibly on every tile of a picture, which the weights' scales below see to.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from transformers import Llama4ForConditionalGeneration, PreTrainedTokenizerFast

from demo.architecture import Size, build_config
from demo.saving import save_checkpoint
from demo.tokenizer import build_tokenizer

TINY = Size(
    text_width=128,
    text_layers=4,
    text_kv_heads=2,
    expert_width=96,
    experts=2,
    nope_interval=4,
    qk_norm=True,
    vision_width=64,
    vision_layers=2,
    adapter_width=64,
)

# Standard deviation of a matrix = gain / sqrt(inputs), by the end of the parameter's name; 1 where none matches.
_GAINS = {
    # Strong enough that a picture outweighs the words around it, its mean over 144 embeddings included.
    "multi_modal_projector.linear_1.weight": 4.0,
    # A token near the border of two experts must not make the answer jump: the shared expert dominates.
    "experts.down_proj": 0.3,
    # Logits of about 2: where they are larger, bfloat16 is so coarse that rounding alone moves a logprob by 0.06.
    "lm_head.weight": 0.7,
}


def make_checkpoint(directory: Path, seed: int = 0, dtype: str = "bfloat16") -> None:
    """Writes the checkpoint; the same seed gives the same bytes.

    dtype: of the weights on disk, "bfloat16" or "float32"; the numbers differ by rounding only.
    """
    tokenizer = build_tokenizer()
    model = Llama4ForConditionalGeneration(build_config(TINY, tokenizer, dtype))
    _fill(model, seed)
    _silence_special_tokens(model, tokenizer)
    save_checkpoint(model, tokenizer, directory)


@torch.no_grad()
def _fill(model: torch.nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name and name.endswith("weight"):
            parameter.copy_(1 + 0.1 * noise)
        elif parameter.ndim == 1:
            parameter.copy_(0.1 * noise)
        elif "embed" in name and "patch" not in name:
            parameter.copy_(noise)
        else:
            gain = next((gain for end, gain in _GAINS.items() if name.endswith(end)), 1.0)
            # Experts are stored [experts, inputs, outputs], linear layers [outputs, inputs].
            inputs = parameter.shape[1]
            parameter.copy_(noise * gain / math.sqrt(inputs))


@torch.no_grad()
def _silence_special_tokens(model: Llama4ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast) -> None:
    """Answers are text of the length asked for: only tokens of printable ASCII have a logit other than 0."""
    head = model.get_output_embeddings().weight
    special = tokenizer.added_tokens_decoder
    for token in range(head.shape[0]):
        text = tokenizer.decode([token]) if token < len(tokenizer) and token not in special else ""
        if not (text and text.isascii() and text.isprintable()):
            head[token] = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    make_checkpoint(options.directory, options.seed)
    print(f"wrote a random Llama 4 to {options.directory}")


if __name__ == "__main__":
    main()
