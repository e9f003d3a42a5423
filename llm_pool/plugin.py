"""Entry point of `vllm.general_plugins`; vLLM calls `register` in every one of its processes, perhaps repeatedly."""

from __future__ import annotations

# A name of our own leaves vLLM's class for Llama 4 as it is, and where this plugin did not load, the engine refuses
# to start: no such architecture.
ARCHITECTURE = "TesseraLlama4ForConditionalGeneration"


def register() -> None:
    """Names the model class to vLLM; by a string, so that nothing is imported before the class is needed."""
    from vllm import ModelRegistry

    ModelRegistry.register_model(ARCHITECTURE, "llm_pool.vllm_model:Llama4FromEmbeddings")
