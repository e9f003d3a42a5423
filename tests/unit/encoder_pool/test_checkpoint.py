"""Which files are read, which are fetched, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import save_file

from encoder_pool.checkpoint import canonical_name, open_checkpoint
from encoder_pool.errors import CheckpointError
from encoder_pool.settings import ModelSettings
from encoder_pool.weights import load_weights

# Names that the published fp8 and int4 checkpoints have beside their text weights.
QUANTIZED_TEXT = {
    "language_model.model.layers.0.self_attn.q_proj.weight": torch.zeros(8, 8).to(torch.float8_e4m3fn),
    "language_model.model.layers.0.self_attn.q_proj.weight_scale": torch.ones(8, 1),
    "language_model.model.layers.0.feed_forward.experts.0.up_proj.weight_packed": torch.zeros(8, 1, dtype=torch.int32),
    "language_model.model.layers.0.feed_forward.experts.0.up_proj.weight_scale": torch.ones(8, 1),
    "language_model.model.layers.0.feed_forward.experts.0.up_proj.weight_shape": torch.tensor([8, 8]),
}


def write_sharded(source: Path, target: Path, shards: list[dict[str, torch.Tensor]]) -> None:
    """A copy of a checkpoint whose weights lie in these shards, with an index."""
    target.mkdir()
    shutil.copy(source / "config.json", target)
    weight_map = {}
    for i, tensors in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(tensors, target / name)
        weight_map |= dict.fromkeys(tensors, name)
    (target / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


@pytest.fixture
def make_sharded(
    checkpoint: Path, tensors: dict[str, torch.Tensor], tmp_path: Path
) -> Callable[[dict[str, torch.Tensor]], Path]:
    """Copies the checkpoint with further tensors: shard 1 holds text only, shard 2 both, shard 3 vision only."""

    def make(more: dict[str, torch.Tensor]) -> Path:
        every = tensors | more
        vision = sorted(name for name in every if canonical_name(name))
        text = sorted(every.keys() - set(vision))
        groups = [text[:-2], text[-2:] + vision[:5], vision[5:]]
        folder = tmp_path / "sharded"
        write_sharded(checkpoint, folder, [{name: every[name] for name in group} for group in groups])
        return folder

    return make


def load(source: str | Path) -> list[torch.Tensor]:
    weights = load_weights(ModelSettings(source=str(source)), torch.float32, torch.device("cpu"))[1]
    return [weights.patch, weights.layers[-1].qkv.weight, weights.projector]


def test_text_shards_are_not_needed(checkpoint: Path, make_sharded: Callable[..., Path]) -> None:
    folder = make_sharded({})
    (folder / "model-00001-of-00003.safetensors").unlink()
    for ours, expected in zip(load(folder), load(checkpoint), strict=True):
        assert torch.equal(ours, expected)


def test_quantized_text_weights_do_not_matter(checkpoint: Path, make_sharded: Callable[..., Path]) -> None:
    for ours, expected in zip(load(make_sharded(QUANTIZED_TEXT)), load(checkpoint), strict=True):
        assert torch.equal(ours, expected)


@pytest.mark.parametrize(
    ("suffix", "tensor"),
    [
        ("weight_scale", torch.ones(1)),
        ("weight_packed", torch.zeros(4, 4, dtype=torch.int32)),
        ("weight_zero_point", torch.zeros(4, 1)),
        ("weight", torch.zeros(64, 64).to(torch.float8_e4m3fn)),
    ],
)
@pytest.mark.parametrize("layer", ["vision_model.model.layers.1.self_attn.q_proj", "multi_modal_projector.linear_1"])
def test_quantized_vision_weights_are_refused_by_name(
    make_sharded: Callable[..., Path], layer: str, suffix: str, tensor: torch.Tensor
) -> None:
    # The tiny checkpoint's names have a leading `model.` or none: a tensor of the same name is replaced.
    folder = make_sharded({f"{layer}.{suffix}": tensor})
    with pytest.raises(CheckpointError, match=rf"{layer}\.{suffix}.*quantized"):
        open_checkpoint(ModelSettings(source=str(folder)))


def test_a_missing_tensor_is_named(checkpoint: Path, tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    rest = {name: tensor for name, tensor in tensors.items() if not name.endswith("layers.1.mlp.fc1.bias")}
    write_sharded(checkpoint, tmp_path / "c", [rest])
    with pytest.raises(CheckpointError, match=r"lacks 1 vision tensors.*layers\.1\.mlp\.fc1\.bias"):
        open_checkpoint(ModelSettings(source=str(tmp_path / "c")))


def test_an_unknown_tensor_is_named(make_sharded: Callable[..., Path]) -> None:
    folder = make_sharded({"vision_model.surprise": torch.zeros(1)})
    with pytest.raises(CheckpointError, match=r"vision_model\.surprise is no tensor"):
        open_checkpoint(ModelSettings(source=str(folder)))


def test_a_wrong_shape_is_named(checkpoint: Path, tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    name = next(name for name in tensors if name.endswith("class_embedding"))
    write_sharded(checkpoint, tmp_path / "c", [tensors | {name: torch.zeros(65)}])
    with pytest.raises(CheckpointError, match=r"class_embedding has shape \[65\], config.json asks for \[64\]"):
        open_checkpoint(ModelSettings(source=str(tmp_path / "c")))


def test_a_text_model_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    del config["vision_config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="no vision_config"):
        open_checkpoint(ModelSettings(source=str(tmp_path)))


@pytest.mark.parametrize("keep", [4, 100, -10])
def test_a_cut_off_file_is_refused(checkpoint: Path, tmp_path: Path, keep: int) -> None:
    shutil.copytree(checkpoint, tmp_path / "c")
    for shard in (tmp_path / "c").glob("*.safetensors"):
        shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="cut off"):
        open_checkpoint(ModelSettings(source=str(tmp_path / "c")))


def test_an_absent_folder_is_no_hub_id() -> None:
    with pytest.raises(CheckpointError, match="neither a folder nor a hub id"):
        open_checkpoint(ModelSettings(source="./no/such/folder"))


@pytest.fixture
def hub(make_sharded: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str]]:
    """A hub with one model, `org/llama`; returns the (file, revision) asked for, in order."""
    published, asked = make_sharded(QUANTIZED_TEXT), []
    snapshot = tmp_path / "cache" / "snapshots" / "c0ffee"

    def download(repo_id: str, filename: str, *, revision: str | None = None) -> str:
        assert repo_id == "org/llama"
        asked.append((filename, revision))
        snapshot.mkdir(parents=True, exist_ok=True)
        return shutil.copy(published / filename, snapshot)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return asked


def test_only_the_needed_files_of_a_hub_model_are_fetched(hub: list[tuple[str, str]], checkpoint: Path) -> None:
    weights = load("org/llama")
    assert torch.equal(weights[0], load(checkpoint)[0])
    assert {name for name, _ in hub} == {
        "config.json",
        "model.safetensors.index.json",
        "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors",
    }


def test_all_files_of_a_hub_model_are_of_one_commit(hub: list[tuple[str, str]]) -> None:
    open_checkpoint(ModelSettings(source="org/llama", revision="main"))
    assert hub[0] == ("config.json", "main")
    assert {revision for _, revision in hub[1:]} == {"c0ffee"}


def test_a_hub_that_cannot_be_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    with pytest.raises(CheckpointError, match="not in the local cache, and the hub cannot be reached"):
        open_checkpoint(ModelSettings(source="org/llama"))
