"""What the runner and the graph manager need of an encoder model; they know nothing else about it.

The roles are those of vLLM's `SupportsEncoderCudaGraph`, so that a model that has one interface can be given the
other. vLLM first had a method each for the number of items, their input sizes and their output tokens, and later
merged these three into item specs (`...` stands for `get_encoder_cudagraph`):

| here | vLLM, first interface | vLLM, merged interface |
|---|---|---|
| `graph_config` | `get_encoder_cudagraph_config` | the same |
| `budget_range` | `get_encoder_cudagraph_budget_range` | the same |
| `item_spec` | `..._num_items`, `..._per_item_output_tokens`, `..._per_item_input_sizes` | `..._item_specs` |
| `select` | `select_encoder_cudagraph_items` | the same |
| `capture_inputs` | `prepare_encoder_cudagraph_capture_inputs` | the same |
| `replay_inputs` | `prepare_encoder_cudagraph_replay_buffers` | the same |
| `forward_graph` | `encoder_cudagraph_forward` | the same |
| `forward_eager` | `encoder_eager_forward` | the same |
| `split_output` | `scatter_output_slices` | `postprocess_encoder_output` |

One thing differs. vLLM packs whole items; here an item is a run of tiles that do not see each other, so `select`
takes a range of tiles, which may begin in one item and end in another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

# Name of an input -> tensor, whose first dimension counts tiles.
Inputs = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class GraphConfig:
    """modality: what the items are, e.g. "image".

    input_keys: the names of an item's tensors.
    buffer_keys: the names of the tensors that a captured graph reads, filled anew before each replay.
    output_width: values of one output row.
    output_rows_per_tile: output rows that a tile becomes.
    """

    modality: str
    input_keys: tuple[str, ...]
    buffer_keys: tuple[str, ...]
    output_width: int
    output_rows_per_tile: int


@dataclass(frozen=True, slots=True)
class ItemSpec:
    """tiles: size of one item's input; output_tokens: rows of its output."""

    tiles: int
    output_tokens: int


class GraphableEncoder(Protocol):
    """An encoder whose tiles are independent of each other."""

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype:
        """Of the output."""
        ...

    def graph_config(self) -> GraphConfig: ...

    def budget_range(self) -> tuple[int, int]:
        """The smallest and the largest number of tiles that are worth a graph."""
        ...

    def item_spec(self, item: Inputs) -> ItemSpec: ...

    def select(self, batch: Inputs, start: int, stop: int) -> Inputs:
        """Tiles [start, stop) of a batch, as views."""
        ...

    def capture_inputs(self, budget: int) -> dict[str, torch.Tensor]:
        """New buffers, all zero, for a graph of `budget` tiles; keys are `buffer_keys`."""
        ...

    def replay_inputs(self, inputs: Inputs) -> Inputs:
        """What goes into the first rows of those buffers for these inputs; the manager zeroes the rest."""
        ...

    def forward_graph(self, buffers: Inputs) -> torch.Tensor:
        """[budget * output_rows_per_tile, output_width]; no host synchronization, no shape that depends on values."""
        ...

    def forward_eager(self, inputs: Inputs) -> torch.Tensor:
        """[tiles * output_rows_per_tile, output_width]."""
        ...

    def split_output(self, output: torch.Tensor, specs: Sequence[ItemSpec]) -> list[torch.Tensor]:
        """The rows of each item, as views, in order."""
        ...
