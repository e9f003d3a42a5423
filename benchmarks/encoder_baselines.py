"""The same vision encoder by others, on the same weights: transformers, and vLLM eager and in CUDA graphs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.checkpoint import write_checkpoint
from encoder_pool.geometry import VisionGeometry
from tests.vision_reference import reference_tower

# One dense layer: every second one would have experts.
_NARROW_TEXT: dict[str, Any] = {
    "num_hidden_layers": 1,
    "no_rope_layers": [1],
    "layer_types": ["chunked_attention"],
    "interleave_moe_layer_step": 2,
    "moe_layers": [],
}


def normalize(tiles: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """uint8 tiles -> pixel values as Llama 4's image processor makes them."""
    return ((tiles.float() / 255 - 0.5) / 0.5).to(dtype)


class TransformersEncoder:
    """Llama4VisionModel with PyTorch's scaled-dot-product attention, and the projector."""

    def __init__(self, geometry: VisionGeometry, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tower = reference_tower(geometry, tensors)
        self._projector = tensors["multi_modal_projector.linear_1.weight"]

    @torch.inference_mode()
    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """[N, 3, tile, tile] -> [N * tokens_per_tile, text_width]."""
        return torch.nn.functional.linear(self._tower(pixels).last_hidden_state, self._projector).flatten(0, 1)


class VllmEncoder:
    """vLLM's stock Llama 4 model with a text model of one layer, outside of an engine.

    The vision tower, its projector, the graph manager and its packing are vLLM's own; only the scheduler is absent.
    """

    def __init__(
        self, geometry: VisionGeometry, tensors: Mapping[str, torch.Tensor], device: torch.device, max_tokens: int
    ) -> None:
        """max_tokens: vLLM's max_num_batched_tokens, from which it derives its budgets."""
        from vllm.config import set_current_vllm_config
        from vllm.distributed import init_distributed_environment, initialize_model_parallel
        from vllm.engine.arg_utils import EngineArgs
        from vllm.model_executor.model_loader.utils import process_weights_after_loading
        from vllm.model_executor.models.mllama4 import Llama4ForConditionalGeneration

        self._folder = tempfile.TemporaryDirectory()
        write_checkpoint(Path(self._folder.name), geometry, _NARROW_TEXT | {"max_position_embeddings": max_tokens})
        arguments = EngineArgs(
            model=self._folder.name,
            dtype="bfloat16",
            load_format="dummy",
            mm_encoder_only=True,
            enforce_eager=True,
            max_model_len=max_tokens,
            max_num_batched_tokens=max_tokens,
        )
        self._config = arguments.create_engine_config()
        self._device = device
        with set_current_vllm_config(self._config):
            store = tempfile.NamedTemporaryFile(delete=False)  # noqa: SIM115  (outlives this function)
            backend = "nccl" if device.type == "cuda" else "gloo"
            init_distributed_environment(1, 0, f"file://{store.name}.store", 0, backend=backend)
            initialize_model_parallel()
            with torch.device(device):
                torch.set_default_dtype(torch.bfloat16)
                self._model = Llama4ForConditionalGeneration(vllm_config=self._config)
                torch.set_default_dtype(torch.float32)
            loaded = self._model.load_weights((name, tensor.bfloat16()) for name, tensor in tensors.items())
            for part in (self._model.vision_model, self._model.multi_modal_projector):
                process_weights_after_loading(part, self._config.model_config, device)
        vision = {name for name, _ in self._model.named_parameters() if not name.startswith("language_model.")}
        if not vision <= loaded:
            raise RuntimeError(f"vLLM did not load {sorted(vision - loaded)[:3]}")

    @torch.inference_mode()
    def eager(self, pixels: torch.Tensor) -> torch.Tensor:
        """[N, 3, tile, tile] in bfloat16 -> [N * tokens_per_tile, text_width]."""
        return self._model.encode_image_chunks(pixels, use_data_parallel=False).flatten(0, 1)

    def capture(self, budgets: Sequence[int] | None) -> Any:
        """vLLM's graph manager with graphs captured: its default budgets, or these (in tokens)."""
        from vllm.config import set_current_vllm_config
        from vllm.v1.worker.encoder_cudagraph import EncoderCudaGraphManager

        compilation = self._config.compilation_config
        compilation.encoder_cudagraph_token_budgets = list(budgets or [])
        # As many images as there may be tiles; vLLM caps it at the smallest budget.
        compilation.encoder_cudagraph_max_vision_items_per_batch = 64 if budgets else 0
        with set_current_vllm_config(self._config):
            manager = EncoderCudaGraphManager(self._config, self._device, torch.bfloat16, self._model)
            # vLLM captures on the current stream, which must not be the default one.
            with torch.cuda.stream(torch.cuda.Stream()):
                manager.capture(torch.cuda.graph_pool_handle())
        return manager

    @staticmethod
    @torch.inference_mode()
    def graph(manager: Any, pixels: torch.Tensor, images: Sequence[int]) -> list[torch.Tensor]:
        """Encodes images of these numbers of tiles through a manager of `capture`."""
        return manager.execute({"pixel_values": pixels, "patches_per_image": torch.tensor(images)})
