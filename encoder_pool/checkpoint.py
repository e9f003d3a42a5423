"""Finds the vision tensors of a checkpoint on disk or on the hub, without touching what holds text weights alone."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.errors import (
    EntryNotFoundError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)

from encoder_pool.errors import CheckpointError
from encoder_pool.geometry import VisionGeometry
from encoder_pool.settings import ModelSettings

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

_PREFIXES = ("vision_model.", "multi_modal_projector.")
_FLOATS = {"BF16", "F16", "F32"}
# What compressed-tensors, fp8 and int4 recipes store beside or instead of a weight.
_QUANTIZER_NAMES = {
    "weight_scale",
    "weight_scale_inv",
    "weight_scale_2",
    "weight_packed",
    "weight_shape",
    "weight_zero_point",
    "weight_g_idx",
    "input_scale",
    "input_zero_point",
    "qweight",
    "qzeros",
    "scales",
    "g_idx",
}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where one tensor lies: its name as stored, and bytes [start, stop) of a safetensors file.

    dtype: safetensors' name of it, e.g. BF16.
    """

    stored_name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose vision tensors are known to be complete, unquantized and of the right shapes.

    tensors: name without an optional leading `model.` -> entry, in name order.
    """

    geometry: VisionGeometry
    tensors: dict[str, TensorEntry]


def canonical_name(stored: str) -> str | None:
    """The name without an optional leading `model.`, or None for a tensor outside the vision encoder."""
    name = stored.removeprefix("model.")
    return name if name.startswith(_PREFIXES) else None


def read_geometry(settings: ModelSettings) -> VisionGeometry:
    """Reads (or fetches) nothing but the configuration. Raises CheckpointError."""
    return _geometry(_locate(settings)(CONFIG))


def open_checkpoint(settings: ModelSettings) -> Checkpoint:
    """Finds every vision and projector tensor of `settings.source`; reads file headers, no weights.

    Of a hub model, only the configuration, the index and the shards that hold such tensors are fetched, all of one
    commit; the hub client's own environment variables (token, offline mode, cache folder, progress bars) apply.
    Raises CheckpointError where something is missing, of the wrong shape, or quantized.
    """
    locate = _locate(settings)
    geometry = _geometry(locate(CONFIG))
    entries: dict[str, TensorEntry] = {}
    for shard in _vision_shards(locate):
        for entry in _read_header(locate(shard)):
            name = canonical_name(entry.stored_name)
            if name is not None:
                entries[name] = entry
    _check(entries, geometry)
    return Checkpoint(geometry, dict(sorted(entries.items())))


def _locate(settings: ModelSettings) -> Callable[[str], Path]:
    """A function from a file's name in the checkpoint to its local path, which fetches it if need be."""
    folder = Path(settings.source).expanduser()
    if folder.is_dir():

        def in_folder(name: str) -> Path:
            if not (folder / name).is_file():
                raise CheckpointError(f"{name} is missing in {settings.source}")
            return folder / name

        return in_folder

    def from_hub(name: str, revision: str | None = settings.revision) -> Path:
        try:
            return Path(huggingface_hub.hf_hub_download(settings.source, name, revision=revision))
        except HFValidationError:
            raise CheckpointError(f"{settings.source!r} is neither a folder nor a hub id") from None
        except LocalEntryNotFoundError:
            raise CheckpointError(
                f"{name} of {settings.source} is not in the local cache, and the hub cannot be reached"
            ) from None
        except RepositoryNotFoundError:
            raise CheckpointError(f"the hub has no {settings.source}, or this token may not read it") from None
        except EntryNotFoundError:
            raise CheckpointError(f"{name} is missing in {settings.source}") from None

    # The cache keeps snapshots/<commit>/<file>: asking for the commit from here on keeps the files of one version
    # together when a branch moves meanwhile.
    commit = from_hub(CONFIG).parent.name
    return lambda name: from_hub(name, commit)


def _geometry(config: Path) -> VisionGeometry:
    return VisionGeometry.from_config(json.loads(config.read_text()))


def _vision_shards(locate: Callable[[str], Path]) -> list[str]:
    try:
        index = locate(INDEX)
    except CheckpointError:
        return [SINGLE]
    weight_map: dict[str, str] = json.loads(index.read_text())["weight_map"]
    return sorted({shard for name, shard in weight_map.items() if canonical_name(name) is not None})


def _read_header(file: Path) -> list[TensorEntry]:
    """Entries of a safetensors file: an 8-byte little-endian length, a JSON header, then the tensors' bytes."""
    with file.open("rb") as f:
        try:
            (length,) = struct.unpack("<Q", f.read(8))
            header: dict[str, Any] = json.loads(f.read(length))
        except (struct.error, ValueError):
            raise CheckpointError(f"{file.name} is not a safetensors file, or is cut off") from None
    base = 8 + length
    entries = [
        TensorEntry(
            stored_name=name,
            file=file,
            dtype=tensor["dtype"],
            shape=tuple(tensor["shape"]),
            start=base + tensor["data_offsets"][0],
            stop=base + tensor["data_offsets"][1],
        )
        for name, tensor in header.items()
        if name != "__metadata__"
    ]
    if max((entry.stop for entry in entries), default=base) > file.stat().st_size:
        raise CheckpointError(f"{file.name} is cut off")
    return entries


def _check(entries: dict[str, TensorEntry], geometry: VisionGeometry) -> None:
    shapes = geometry.tensor_shapes()
    for name, entry in sorted(entries.items()):
        if entry.dtype not in _FLOATS or name.rpartition(".")[2] in _QUANTIZER_NAMES:
            raise CheckpointError(
                f"{entry.stored_name} ({entry.dtype}) says that the vision weights are quantized; only those of the "
                "text model may be"
            )
        if name not in shapes:
            raise CheckpointError(f"{entry.stored_name} is no tensor of the Llama 4 vision encoder")
        if entry.shape != shapes[name]:
            raise CheckpointError(
                f"{entry.stored_name} has shape {list(entry.shape)}, config.json asks for {list(shapes[name])}"
            )
    missing = sorted(shapes.keys() - entries.keys())
    if missing:
        raise CheckpointError(f"the checkpoint lacks {len(missing)} vision tensors, the first is {missing[0]}")
