"""The fingerprint follows the vision weights and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from encoder_pool.checkpoint import canonical_name
from encoder_pool.errors import CheckpointError
from encoder_pool.fingerprint import fingerprint
from encoder_pool.settings import ModelSettings


def of(folder: Path) -> str:
    return fingerprint(ModelSettings(source=str(folder)))


def copy_with(checkpoint: Path, target: Path, tensors: dict[str, torch.Tensor]) -> Path:
    target.mkdir()
    shutil.copy(checkpoint / "config.json", target)
    save_file(tensors, target / "model.safetensors")
    return target


def test_it_is_a_stable_hex_digest(checkpoint: Path) -> None:
    assert of(checkpoint) == of(checkpoint)
    assert len(bytes.fromhex(of(checkpoint))) == 32


def test_shards_and_prefix_do_not_matter(checkpoint: Path, tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    renamed = {canonical_name(name) or name: t for name, t in tensors.items()}
    prefixed = {f"model.{name}" if canonical_name(name) else name: t for name, t in renamed.items()}
    assert of(copy_with(checkpoint, tmp_path / "plain", renamed)) == of(checkpoint)
    assert of(copy_with(checkpoint, tmp_path / "prefixed", prefixed)) == of(checkpoint)
    sharded = copy_with(checkpoint, tmp_path / "sharded", {"unused": torch.zeros(1)})
    names = sorted(tensors)
    weight_map = {}
    for i in range(3):
        part = {name: tensors[name] for name in names[i::3]}
        save_file(part, sharded / f"part-{i}.safetensors")
        weight_map |= dict.fromkeys(part, f"part-{i}.safetensors")
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert of(sharded) == of(checkpoint)


def test_text_weights_do_not_matter(checkpoint: Path, tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    changed = {name: t if canonical_name(name) else t + 1 for name, t in tensors.items()}
    assert of(copy_with(checkpoint, tmp_path / "c", changed)) == of(checkpoint)


def test_one_vision_value_matters(checkpoint: Path, tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    for i, part in enumerate(("layers.1.mlp.fc2.bias", "multi_modal_projector.linear_1.weight")):
        name = next(name for name in tensors if name.endswith(part))
        changed = tensors | {name: tensors[name].clone()}
        changed[name].view(-1)[-1] += 1
        assert of(copy_with(checkpoint, tmp_path / str(i), changed)) != of(checkpoint)


def test_dtype_on_disk_matters(checkpoint: Path, tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    half = {name: t.to(torch.bfloat16) for name, t in tensors.items()}
    assert of(copy_with(checkpoint, tmp_path / "c", half)) != of(checkpoint)


def test_dummy_weights_are_named_by_their_seed() -> None:
    settings = ModelSettings(source="not/read", load_format="dummy", seed=7)
    assert fingerprint(settings) == "dummy:7"


def test_a_broken_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        of(tmp_path)


def test_it_needs_no_torch() -> None:
    code = "import sys, encoder_pool.fingerprint; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
