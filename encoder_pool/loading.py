"""From settings to a runner that is ready to encode."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from encoder_pool.cuda_runner import CudaRunner
from encoder_pool.errors import UnsupportedDeviceError
from encoder_pool.geometry import VisionGeometry
from encoder_pool.graphs import CaptureReport, GraphManager, default_budgets
from encoder_pool.model import Llama4VisionEncoder
from encoder_pool.ops import EncoderOps, TorchOps
from encoder_pool.runner import EagerRunner, Runner
from encoder_pool.settings import EncoderSettings, ModelSettings
from encoder_pool.weights import load_weights

logger = logging.getLogger("ray.serve")

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class LoadedEncoder:
    """capture: what became of the graphs; None where none were wanted."""

    geometry: VisionGeometry
    runner: Runner
    capture: CaptureReport | None


def load_encoder(model: ModelSettings, encoder: EncoderSettings, device: torch.device) -> LoadedEncoder:
    """Loads the weights and, on a CUDA device, captures the graphs.

    Raises CheckpointError, and UnsupportedDeviceError where the device lacks what the settings ask for.
    """
    dtype = getattr(torch, model.dtype)
    if encoder.quantization is not None and (device.type != "cuda" or dtype != torch.bfloat16):
        raise UnsupportedDeviceError(f"quantization: {encoder.quantization} needs a GPU and dtype: bfloat16")
    if device.type == "cuda" and encoder.memory_limit_gib is not None:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, encoder.memory_limit_gib * _GIB / total), device)
    geometry, weights = load_weights(model, dtype, device)
    encoder_model = Llama4VisionEncoder(geometry, weights, _ops(geometry, dtype, device, encoder))
    smallest, largest = encoder_model.budget_range()
    if device.type != "cuda":
        return LoadedEncoder(geometry, EagerRunner(encoder_model), None)
    if encoder.max_graph_tiles == 0:
        return LoadedEncoder(geometry, EagerRunner(encoder_model, chunk_tiles=largest), None)
    manager = GraphManager(encoder_model)
    max_bytes = min(encoder.graph_memory_gib * _GIB, torch.cuda.mem_get_info(device)[0] / 2)
    budgets = default_budgets(smallest, min(largest, encoder.max_graph_tiles))
    report = manager.capture(budgets, int(max_bytes))
    logger.info(
        "captured %d encoder graphs, up to %d tiles, in %.1f s and %.2f GiB",
        len(report.captured),
        max(report.captured, default=0),
        report.seconds,
        report.bytes / _GIB,
    )
    return LoadedEncoder(geometry, CudaRunner(encoder_model, manager, batch_tiles=largest), report)


def _ops(geometry: VisionGeometry, dtype: torch.dtype, device: torch.device, encoder: EncoderSettings) -> EncoderOps:
    if device.type != "cuda" or dtype != torch.bfloat16:
        return TorchOps(geometry, dtype, device)
    # Imported here: Triton comes with PyTorch's CUDA builds only.
    from encoder_pool.fused_ops import FusedFp8Ops, FusedOps

    return FusedFp8Ops(geometry, device) if encoder.quantization == "fp8" else FusedOps(geometry, device)
