"""Captured graphs against eager runs, padding, sequences, failures and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from encoder_pool.graphs import GraphManager, default_budgets
from encoder_pool.model import TILES, Llama4VisionEncoder
from encoder_pool.protocol import GraphableEncoder, GraphConfig, Inputs, ItemSpec
from tests.vision_reference import relative_error

GIB = 2**30
ROWS = 144


def random_inputs(count: int, device: torch.device) -> dict[str, torch.Tensor]:
    return {TILES: torch.randint(0, 256, (count, 3, 336, 336), dtype=torch.uint8, device=device)}


def run(manager: GraphManager, model: GraphableEncoder, inputs: Inputs) -> torch.Tensor:
    """Encodes into an output that holds NaN, so that a row which nobody writes is seen."""
    config = model.graph_config()
    rows = model.item_spec(inputs).output_tokens
    output = torch.full((rows, config.output_width), torch.nan, dtype=model.dtype, device=model.device)
    with torch.inference_mode():
        manager.run(inputs, output)
    torch.cuda.synchronize()
    assert torch.isfinite(output).all()
    return output


def captured(model: GraphableEncoder, budgets: Sequence[int]) -> GraphManager:
    manager = GraphManager(model)
    report = manager.capture(budgets, 6 * GIB)
    assert sorted(report.captured) == sorted(budgets)
    return manager


def test_every_budget_agrees_with_eager(scout: Llama4VisionEncoder, device: torch.device) -> None:
    budgets = default_budgets(1, 64)
    manager = GraphManager(scout)
    report = manager.capture(budgets, 6 * GIB)
    print(f"{len(report.captured)} graphs in {report.seconds:.1f} s, {report.bytes / GIB:.2f} GiB")
    assert report.failed == report.over_limit == []
    assert report.seconds <= 60
    assert report.bytes <= 6 * GIB
    for count in budgets:
        inputs = random_inputs(count, device)
        assert relative_error(run(manager, scout, inputs), scout.forward_eager(inputs).float()) <= 1e-2


def test_fp8_graphs_agree_with_eager(scout_fp8: Llama4VisionEncoder, device: torch.device) -> None:
    manager = captured(scout_fp8, [1, 5, 17])
    for count in (1, 5, 17, 23):
        inputs = random_inputs(count, device)
        assert relative_error(run(manager, scout_fp8, inputs), scout_fp8.forward_eager(inputs).float()) <= 1e-2


def test_what_fills_a_graph_cannot_change_a_result(scout: Llama4VisionEncoder, device: torch.device) -> None:
    manager = captured(scout, [17])
    tiles = random_inputs(17, device)[TILES]
    padded = run(manager, scout, {TILES: tiles[:10]})
    with_others = run(manager, scout, {TILES: tiles})
    assert torch.equal(padded, with_others[: 10 * ROWS])


def test_graphs_that_share_memory_keep_apart(small: Llama4VisionEncoder, device: torch.device) -> None:
    manager = captured(small, [1, 2, 3, 5, 7, 10, 13, 16, 17, 34])
    for count in (1, 17, 1, 5, 17, 16, 3, 1, 33, 34, 35, 64, 65, 200):
        inputs = random_inputs(count, device)
        assert relative_error(run(manager, small, inputs), small.forward_eager(inputs).float()) <= 1e-2


class Breaking:
    """The model, but the graphs of some budgets cannot be captured."""

    def __init__(self, model: Llama4VisionEncoder, broken: set[int]) -> None:
        self._model, self._broken = model, broken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward_graph(self, buffers: Inputs) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing() and len(buffers[TILES]) in self._broken:
            raise RuntimeError("injected")
        return self._model.forward_graph(buffers)


@pytest.mark.parametrize("broken", [{3}, {1, 3}, {1, 3, 17}])
def test_failed_captures_leave_the_rest_serving(
    small: Llama4VisionEncoder, device: torch.device, broken: set[int], caplog: pytest.LogCaptureFixture
) -> None:
    manager = GraphManager(Breaking(small, broken))
    report = manager.capture([1, 3, 17], 6 * GIB)
    assert set(report.failed) == broken
    assert set(report.captured) == {1, 3, 17} - broken
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1
    for count in (1, 3, 4, 17, 20):
        inputs = random_inputs(count, device)
        assert relative_error(run(manager, small, inputs), small.forward_eager(inputs).float()) <= 1e-2


def test_the_memory_limit_leaves_out_large_budgets(scout: Llama4VisionEncoder) -> None:
    manager = GraphManager(scout)
    report = manager.capture([1, 5, 64], GIB // 2)
    assert (report.over_limit, report.captured) == ([64], [1, 5])
    assert report.bytes <= GIB


def test_capture_with_a_gibibyte_left(scout: Llama4VisionEncoder, device: torch.device) -> None:
    torch.cuda.empty_cache()
    hog = torch.empty(torch.cuda.mem_get_info(device)[0] - GIB, dtype=torch.uint8, device=device)
    try:
        manager = GraphManager(scout)
        report = manager.capture(default_budgets(1, 64), 6 * GIB)
        print(f"with 1 GiB left: captured up to {max(report.captured, default=0)}, failed {sorted(report.failed)}")
        assert 64 in report.failed
        assert report.captured == [b for b in default_budgets(1, 64) if b <= max(report.captured)]
        inputs = random_inputs(17, device)
        ours = run(manager, scout, inputs)
    finally:
        del hog
        torch.cuda.empty_cache()
    assert relative_error(ours, scout.forward_eager(inputs).float()) <= 1e-2


class Scaler:
    """A model with two inputs that is nothing like Llama 4: the manager needs to know nothing of either."""

    dtype = torch.float32

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def graph_config(self) -> GraphConfig:
        return GraphConfig("signal", ("wave", "gain"), ("wave", "gain"), output_width=8, output_rows_per_tile=2)

    def budget_range(self) -> tuple[int, int]:
        return 1, 4

    def item_spec(self, item: Inputs) -> ItemSpec:
        return ItemSpec(len(item["wave"]), 2 * len(item["wave"]))

    def select(self, batch: Inputs, start: int, stop: int) -> Inputs:
        return {key: value[start:stop] for key, value in batch.items()}

    def capture_inputs(self, budget: int) -> dict[str, torch.Tensor]:
        return {"wave": torch.zeros(budget, 2, 8, device=self.device), "gain": torch.zeros(budget, device=self.device)}

    def replay_inputs(self, inputs: Inputs) -> Inputs:
        return inputs

    def forward_graph(self, buffers: Inputs) -> torch.Tensor:
        return (buffers["wave"] * buffers["gain"][:, None, None]).flatten(0, 1)

    forward_eager = forward_graph

    def split_output(self, output: torch.Tensor, specs: Sequence[ItemSpec]) -> list[torch.Tensor]:
        return list(output.split([spec.output_tokens for spec in specs]))


def test_another_model_fits_the_manager(device: torch.device) -> None:
    model = Scaler(device)
    manager = captured(model, [1, 2, 4])
    for count in (1, 2, 3, 4, 5, 11):
        inputs = {"wave": torch.randn(count, 2, 8, device=device), "gain": torch.randn(count, device=device)}
        assert torch.equal(run(manager, model, inputs), model.forward_eager(inputs))
