"""Llama 4 checkpoints without weights: real vision sizes, a text model of any size, the demo's tokenizer."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from encoder_pool.geometry import VisionGeometry


def write_checkpoint(folder: Path, geometry: VisionGeometry, text: Mapping[str, Any]) -> None:
    """A demo checkpoint's configuration, tokenizer and processor, with this encoder and these keys of `text_config`.

    To be loaded with `load_format: dummy`.
    """
    from demo.make_checkpoint import make_checkpoint

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    make_checkpoint(folder)
    for shard in folder.glob("*.safetensors*"):
        shard.unlink()
    config = json.loads((folder / "config.json").read_text())
    config["text_config"] |= {"hidden_size": geometry.text_width, **text}
    config["vision_config"] |= {
        "hidden_size": geometry.width,
        "intermediate_size": geometry.mlp_width,
        "num_hidden_layers": geometry.layers,
        "num_attention_heads": geometry.heads,
        "projector_input_dim": geometry.adapter_width,
        "projector_output_dim": geometry.adapter_out,
        "vision_output_dim": geometry.adapter_out,
    }
    (folder / "config.json").write_text(json.dumps(config))
