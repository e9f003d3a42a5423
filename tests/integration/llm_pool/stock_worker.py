"""Loaded by the stock engine's worker: lets vLLM 0.32's CPU backend run Llama 4's vision tower at all.

The tower gives its patch embedding a transposed tensor, which the backend's oneDNN product refuses ("Expected
a.stride(-1) == 1"), and the engine dies at the first picture. A contiguous copy has the same values.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm import _custom_ops

_onednn_mm = _custom_ops.onednn_mm


def _with_contiguous_input(handler: Any, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return _onednn_mm(handler, x.contiguous(), bias)


_custom_ops.onednn_mm = _with_contiguous_input


class StockWorkerExtension:
    """vLLM mixes it into the worker (`worker_extension_cls`), which is how this module is imported there."""
