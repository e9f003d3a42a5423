"""Serve options and vLLM executor from engine arguments."""

from typing import Any

import pytest

from llm_pool.placement import CPU_ENV, most_gpus, place, resolve, world_size
from llm_pool.settings import LLMSettings


def settings(gpus_per_node: int | None, **engine_kwargs: Any) -> LLMSettings:
    return LLMSettings(
        gpus_per_node=gpus_per_node, num_cpus=2, resources={"tessera_decoder": 0.01}, engine_kwargs=engine_kwargs
    )


def test_world_size_is_the_product_of_the_parallel_sizes() -> None:
    assert world_size({}) == 1
    assert world_size({"tensor_parallel_size": 4, "pipeline_parallel_size": 2, "max_num_seqs": 7}) == 8
    assert world_size({"tensor_parallel_size": 2, "prefill_context_parallel_size": 2}) == 4


@pytest.mark.parametrize("workers", [1, 2])
def test_cpu_reserves_no_gpu(workers: int) -> None:
    placement = place(settings(0, tensor_parallel_size=workers))
    assert placement.executor == "mp"
    assert placement.serve_options == {
        "ray_actor_options": {
            "num_cpus": 2,
            "num_gpus": 0,
            "resources": {"tessera_decoder": 0.01},
            "runtime_env": CPU_ENV,
        }
    }


@pytest.mark.parametrize(("workers", "executor"), [(1, "uni"), (2, "mp"), (8, "mp")])
def test_one_node_holds_its_gpus_in_the_replica(workers: int, executor: str) -> None:
    placement = place(settings(8, tensor_parallel_size=workers))
    assert placement.executor == executor
    assert placement.serve_options["ray_actor_options"]["num_gpus"] == workers
    assert "runtime_env" not in placement.serve_options["ray_actor_options"]
    assert "placement_group_bundles" not in placement.serve_options


def test_an_engine_on_one_gpu_may_share_it() -> None:
    shared = settings(1).model_copy(update={"gpu_share": 0.7})
    assert place(shared).serve_options["ray_actor_options"]["num_gpus"] == 0.7
    two = settings(8, tensor_parallel_size=2).model_copy(update={"gpu_share": 0.7})
    with pytest.raises(ValueError, match="gpu_share"):
        place(two)


def test_over_nodes_each_worker_has_a_bundle_and_the_replica_fits_the_first() -> None:
    placement = place(settings(8, tensor_parallel_size=8, pipeline_parallel_size=2))
    options = placement.serve_options
    assert placement.executor == "ray"
    assert options["placement_group_strategy"] == "PACK"
    bundles = options["placement_group_bundles"]
    assert [bundle["GPU"] for bundle in bundles] == [1.0] * 16
    actor = options["ray_actor_options"]
    # A replica that held a GPU would leave its worker none.
    assert actor["num_gpus"] == 0
    assert bundles[0]["CPU"] >= actor["num_cpus"]
    assert bundles[0]["tessera_decoder"] >= actor["resources"]["tessera_decoder"]


def test_gpus_of_a_cluster_are_those_of_its_best_living_node() -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 8.0}},
        {"Alive": True, "Resources": {"CPU": 8.0, "GPU": 4.0}},
        {"Alive": False, "Resources": {"CPU": 8.0, "GPU": 8.0}},
    ]
    assert most_gpus(nodes) == 4
    assert most_gpus(nodes[:1]) == 0
    assert most_gpus([]) == 0


def test_a_number_in_the_settings_needs_no_cluster() -> None:
    assert resolve(settings(8)).gpus_per_node == 8


def test_unresolved_settings_have_no_placement() -> None:
    with pytest.raises(ValueError, match="gpus_per_node"):
        place(settings(None))
