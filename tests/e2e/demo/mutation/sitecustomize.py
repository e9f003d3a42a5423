"""On the PYTHONPATH of an application, puts the embeddings of its decoders in disorder as the file MUTATION says.

The file holds one of MUTATIONS or nothing, and is read at every request.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_DISORDERED = "llm_pool.embeddings"


def _swap_tiles(images: list[Any]) -> list[Any]:
    """The first two tiles of every image that has several."""
    from dataclasses import replace

    import torch

    def swapped(image: Any) -> Any:
        if image.tiles == 1:
            return image
        first, second, *others = image.values.chunk(image.tiles)
        return replace(image, values=torch.cat([second, first, *others]))

    return [swapped(image) for image in images]


def _swap_images(images: list[Any]) -> list[Any]:
    return images[::-1]


def _swap_rows_and_columns(images: list[Any]) -> list[Any]:
    from dataclasses import replace

    return [replace(image, aspect=image.aspect[::-1]) for image in images]


MUTATIONS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "tiles": _swap_tiles,
    "images": _swap_images,
    "rows and columns": _swap_rows_and_columns,
}


def _disorder(module: ModuleType) -> None:
    from dataclasses import replace

    from blake3 import blake3

    rebuild = module.rebuild

    def disordered(hand_off: Any, arrays: Sequence[Any], spec: Any) -> list[Any]:
        images = rebuild(hand_off, arrays, spec)
        name = Path(os.environ["MUTATION"]).read_text()
        if not name:
            return images
        # Under another name: vLLM caches what it has seen.
        return [
            replace(image, hash=blake3(f"{name}{image.hash}".encode()).hexdigest()) for image in MUTATIONS[name](images)
        ]

    module.rebuild = disordered  # type: ignore[attr-defined]


class _Disorder(MetaPathFinder, Loader):
    """Loads the module as always, then replaces its function before any other module can take it."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _DISORDERED:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        self._loader = spec.loader
        spec.loader = self
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _disorder(module)


if "MUTATION" in os.environ:
    sys.meta_path.insert(0, _Disorder())
