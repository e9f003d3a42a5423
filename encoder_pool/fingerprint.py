"""One value that says which vision weights made an embedding; both pools compute it at start and compare."""

from __future__ import annotations

import mmap
from itertools import groupby

from blake3 import blake3

from encoder_pool.checkpoint import open_checkpoint
from encoder_pool.settings import ModelSettings


def fingerprint(settings: ModelSettings) -> str:
    """BLAKE3, in hex, over the vision and projector tensors as they lie on disk, and the shape of an embedding.

    Equal weights give the same value however they are split into shards, and with or without a leading `model.` in
    their names. `dummy:<seed>` for `load_format: dummy`. Reads no other weights than those of the vision encoder
    (1.7 GB for Llama 4 Scout), on all cores. Raises CheckpointError.
    """
    if settings.load_format == "dummy":
        return f"dummy:{settings.seed}"
    checkpoint = open_checkpoint(settings)
    geometry = checkpoint.geometry
    digest = blake3(max_threads=blake3.AUTO)
    digest.update(f"{geometry.text_width} {geometry.tile} {geometry.patch} {geometry.shuffle}".encode())
    for file, group in groupby(checkpoint.tensors.items(), key=lambda item: item[1].file):
        with file.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
            view = memoryview(data)
            for name, entry in group:
                digest.update(f"\n{name} {entry.dtype} {entry.shape}\n".encode())
                with view[entry.start : entry.stop] as tensor:
                    digest.update(tensor)
            view.release()
    return digest.hexdigest()
