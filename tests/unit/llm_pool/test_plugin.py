"""vLLM finds our model under its own name, and its own Llama 4 stays what it was."""

from importlib.metadata import entry_points

from vllm import ModelRegistry

from llm_pool.plugin import ARCHITECTURE, register


def test_the_entry_point_names_register() -> None:
    [point] = [point for point in entry_points(group="vllm.general_plugins") if point.name == "tessera"]
    assert point.load() is register


def test_registration_may_be_repeated_and_leaves_the_stock_class() -> None:
    register()
    register()
    ours = ModelRegistry.models[ARCHITECTURE]
    assert (ours.module_name, ours.class_name) == ("llm_pool.vllm_model", "Llama4FromEmbeddings")
    stock = ModelRegistry.models["Llama4ForConditionalGeneration"]
    assert stock.module_name == "vllm.model_executor.models.mllama4"
