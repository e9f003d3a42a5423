"""The deployment inside a real, local Ray Serve."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray import serve
from safetensors.torch import load_file, save_file

from encoder_pool.deployment import EncoderPool
from encoder_pool.errors import NonFiniteEmbeddingsError, QueueFullError
from encoder_pool.fingerprint import fingerprint
from encoder_pool.model import Llama4VisionEncoder
from encoder_pool.ops import TorchOps
from encoder_pool.settings import EncoderSettings, ModelSettings
from encoder_pool.weights import load_weights
from encoder_pool.wire import EmbeddingMeta, ImageShard
from tests.conftest import Raylets

CPU = torch.device("cpu")
MAX_QUEUED_TILES = 68


Start = Callable[..., Any]


@pytest.fixture(scope="module")
def start(three_raylets: Raylets) -> Iterator[Start]:
    """(ModelSettings, replicas) -> a streaming handle of an application with encoders alone."""
    names: list[str] = []

    def run(model: ModelSettings, replicas: int = 1) -> Any:
        encoder = EncoderSettings(cpu_threads=1, max_queued_tiles=MAX_QUEUED_TILES)
        bound = EncoderPool.options(
            num_replicas=replicas, ray_actor_options={"num_cpus": 0.1}, max_ongoing_requests=1000
        ).bind(model, encoder)
        names.append(uuid.uuid4().hex)
        return serve.run(bound, name=names[-1], route_prefix=None).options(stream=True)

    yield run
    for name in names:
        serve.delete(name)


@pytest.fixture(scope="module")
def handle(start: Start, tiny_checkpoint: Path) -> Any:
    """One float32 replica, shared by the tests that need no other."""
    return start(ModelSettings(source=str(tiny_checkpoint), dtype="float32"))


def shards(*tiles: int) -> list[ImageShard]:
    return [ImageShard(hash=f"{i:064x}", tiles=count, aspect=(1, count)) for i, count in enumerate(tiles)]


def random_tiles(count: int) -> np.ndarray:
    return np.random.default_rng().integers(0, 256, (count, 3, 336, 336), dtype=np.uint8)


async def encode(handle: Any, tiles: np.ndarray, images: list[ImageShard]) -> tuple[list[np.ndarray], EmbeddingMeta]:
    *arrays, meta = [item async for item in handle.encode.remote(tiles, images)]
    return arrays, meta


@pytest.mark.parametrize(("dtype", "replicas"), [("float32", 1), ("bfloat16", 2)])
async def test_arrays_come_first_and_metadata_last(
    start: Start, tiny_checkpoint: Path, request: pytest.FixtureRequest, dtype: Any, replicas: int
) -> None:
    settings = ModelSettings(source=str(tiny_checkpoint), dtype=dtype)
    handle = request.getfixturevalue("handle") if dtype == "float32" else start(settings, replicas)
    geometry, weights = load_weights(settings, getattr(torch, dtype), CPU)
    model = Llama4VisionEncoder(geometry, weights, TorchOps(geometry, getattr(torch, dtype), CPU))
    requests = [shards(5, 1), shards(17), shards(1), shards(3)]
    inputs = [random_tiles(sum(image.tiles for image in images)) for images in requests]
    answers = await asyncio.gather(*(encode(handle, t, i) for t, i in zip(inputs, requests, strict=True)))
    for tiles, images, (arrays, meta) in zip(inputs, requests, answers, strict=True):
        assert meta == EmbeddingMeta(len(images), dtype, fingerprint(settings), meta.tile_bytes, tuple(images))
        assert [a.shape for a in arrays] == [(image.tiles * 144, 128) for image in images]
        assert all(a.flags.c_contiguous and a.dtype == ("float32" if dtype == "float32" else "uint16") for a in arrays)
        ours = torch.from_numpy(np.concatenate(arrays)).view(getattr(torch, dtype)).float()
        expected = model(torch.from_numpy(tiles)).float()
        assert ((ours - expected).norm() / expected.norm()).item() < (1e-5 if dtype == "float32" else 1e-2)


async def test_bad_arguments_are_value_errors_and_harm_nobody(handle: Any) -> None:
    good = random_tiles(1)
    bad: list[tuple[np.ndarray, list[ImageShard]]] = [
        (good.astype(np.float32), shards(1)),
        (good[:, :, :300], shards(1)),
        (good[0], shards(1)),
        (good, shards(2)),
        (good, []),
        (random_tiles(2), shards(2, 0)),
    ]
    calls = [encode(handle, tiles, images) for tiles, images in bad]
    results = await asyncio.gather(*calls, encode(handle, good, shards(1)), return_exceptions=True)
    assert all(isinstance(error, ValueError) for error in results[:-1])
    arrays, meta = results[-1]
    assert meta.n == len(arrays) == 1


async def test_a_full_queue_is_a_typed_error(handle: Any) -> None:
    calls = [encode(handle, random_tiles(17), shards(17)) for _ in range(16)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    refused = [r for r in results if isinstance(r, BaseException)]
    assert refused
    assert all(isinstance(error, QueueFullError) for error in refused)
    assert len(refused) <= 16 - 1 - MAX_QUEUED_TILES // 17


async def test_cancelled_requests_leave_the_replica_serving(handle: Any) -> None:
    responses = [handle.encode.remote(random_tiles(17), shards(17)) for _ in range(3)]
    await asyncio.sleep(0.1)
    for response in responses:
        response.cancel()
    arrays, _ = await asyncio.wait_for(encode(handle, random_tiles(1), shards(1)), timeout=20)
    assert arrays[0].shape == (144, 128)


async def test_non_finite_embeddings_are_a_typed_error(start: Start, tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "infinite"
    shutil.copytree(tiny_checkpoint, folder)
    for shard in folder.glob("*.safetensors"):
        tensors = load_file(shard)
        for name, tensor in tensors.items():
            if name.endswith("patch_embedding.linear.weight"):
                # Two neighbouring pixels overflow where both are white, and cancel where they are opposite.
                tensor.zero_()[:, :2] = 3e38
        save_file(tensors, shard, metadata={"format": "pt"})
    handle = start(ModelSettings(source=str(folder), dtype="float32"))
    with pytest.raises(NonFiniteEmbeddingsError):
        await encode(handle, np.full((1, 3, 336, 336), 255, np.uint8), shards(1))
    striped = np.full((1, 3, 336, 336), 255, np.uint8)
    striped[..., ::2] = 0
    arrays, _ = await encode(handle, striped, shards(1))
    assert np.isfinite(arrays[0]).all()
