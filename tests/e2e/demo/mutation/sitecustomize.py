"""On the PYTHONPATH of an application, puts the embeddings of its decoders in disorder as the file MUTATION says.

The file holds one of MUTATIONS or nothing, and is read at every request.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Mutation:
    """images: what vLLM is told of a request's images; values: the embedding of each, of so many tiles."""

    images: Callable[[list[Any]], list[Any]] = lambda images: images
    values: Callable[[list[Any], list[int]], list[Any]] = lambda values, tiles: values


def _swap_tiles(values: list[Any], tiles: list[int]) -> list[Any]:
    """The first two tiles of every image that has several."""
    import torch

    def swapped(embedding: Any, count: int) -> Any:
        if count == 1:
            return embedding
        first, second, *others = embedding.chunk(count)
        return torch.cat([second, first, *others])

    return [swapped(*one) for one in zip(values, tiles, strict=True)]


MUTATIONS = {
    "tiles": Mutation(values=_swap_tiles),
    "images": Mutation(images=lambda images: images[::-1], values=lambda values, tiles: values[::-1]),
    "rows and columns": Mutation(images=lambda images: [replace(image, aspect=image.aspect[::-1]) for image in images]),
}


def _mutation() -> tuple[str, Mutation]:
    name = Path(os.environ["MUTATION"]).read_text()
    return name, MUTATIONS.get(name, Mutation())


def _disorder_values(module: ModuleType) -> None:
    rebuild = module.rebuild

    def disordered(images: Sequence[Any], arrays: Sequence[Any], spec: Any) -> list[Any]:
        _, mutation = _mutation()
        return mutation.values(rebuild(images, arrays, spec), [image.tiles for image in images])

    module.rebuild = disordered  # type: ignore[attr-defined]


def _disorder_images(module: ModuleType) -> None:
    vllm_parts = module.vllm_parts

    def disordered(images: Sequence[Any], spec: Any) -> list[Any]:
        from blake3 import blake3

        name, mutation = _mutation()
        if not name:
            return vllm_parts(images, spec)
        # Under another name: vLLM caches what it has seen.
        renamed = [replace(image, hash=blake3(f"{name}{image.hash}".encode()).hexdigest()) for image in images]
        return vllm_parts(mutation.images(renamed), spec)

    module.vllm_parts = disordered  # type: ignore[attr-defined]


_DISORDERED = {"llm_pool.embeddings": _disorder_values, "llm_pool.image_parts": _disorder_images}


class _Disorder(MetaPathFinder, Loader):
    """Loads the modules as always, then replaces their functions before any other module can take them."""

    def __init__(self) -> None:
        self._loaders: dict[str, Loader] = {}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _DISORDERED:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        self._loaders[name] = spec.loader
        spec.loader = self
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self._loaders[module.__name__].exec_module(module)
        _DISORDERED[module.__name__](module)


if "MUTATION" in os.environ:
    sys.meta_path.insert(0, _Disorder())
