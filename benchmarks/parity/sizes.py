"""The models that both sides serve, with dummy weights, and the engine arguments that both sides get."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.checkpoint import write_checkpoint
from encoder_pool.geometry import VisionGeometry
from tests.vision_reference import DEMO, SCOUT

HAS_GPU = shutil.which("nvidia-smi") is not None
GIB = 2**30


@dataclass(frozen=True)
class ModelSize:
    """geometry: of the vision encoder; text: keys of `text_config` that differ from the demo's.

    kv_cache_bytes: of the engine, fixed; scale: of the numbers of requests.
    """

    geometry: VisionGeometry
    text: dict[str, Any]
    kv_cache_bytes: int
    scale: float

    def write(self, folder: Path) -> None:
        write_checkpoint(folder, self.geometry, self.text)

    def engine_args(self) -> dict[str, Any]:
        """vLLM's arguments beside the model, its dtype and its load format."""
        args: dict[str, Any] = {
            "max_model_len": 8192,
            "max_num_batched_tokens": 8192,
            "max_num_seqs": 64,
            "kv_cache_memory_bytes": self.kv_cache_bytes,
        }
        if not HAS_GPU:
            return args | {"enforce_eager": True}
        # vLLM only compares its share with what is free at start. No inductor: it would take minutes of every start.
        return args | {
            "gpu_memory_utilization": 0.3,
            "compilation_config": {
                "mode": 0,
                "cudagraph_mode": "FULL_DECODE_ONLY",
                "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 24, 32, 48, 64],
            },
        }


def scout(text_layers: int) -> ModelSize:
    """Scout's vision encoder and Scout's text layers (16 experts, 4.4 GB each in bfloat16), but few of them, and the
    demo's vocabulary of 640 tokens.
    """
    rope = [int((layer + 1) % 4 != 0) for layer in range(text_layers)]
    text = {
        "num_hidden_layers": text_layers,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "num_local_experts": 16,
        "moe_layers": list(range(text_layers)),
        "no_rope_layers": rope,
        "layer_types": ["chunked_attention" if r else "full_attention" for r in rope],
    }
    # Room for more than 48 pictures of 17 tiles, the largest burst.
    return ModelSize(SCOUT, text, kv_cache_bytes=text_layers * 5 * GIB // 8, scale=1.0)


# For rehearsals on a CPU: the figures mean nothing.
TINY = ModelSize(DEMO, {}, kv_cache_bytes=GIB // 4, scale=0.1)
