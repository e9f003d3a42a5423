"""The deployment on a GPU, inside a real Ray Serve."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encoder_pool.deployment import EncoderPool
from encoder_pool.model import Llama4VisionEncoder
from encoder_pool.ops import TorchOps
from encoder_pool.settings import EncoderSettings, ModelSettings
from encoder_pool.weights import load_weights
from tests.integration.encoder_pool.test_deployment import encode, shards
from tests.vision_reference import random_tiles, relative_error

ray = pytest.importorskip("ray")
serve = pytest.importorskip("ray.serve")


@pytest.fixture(scope="module")
def settings(tiny_checkpoint: Path) -> ModelSettings:
    return ModelSettings(source=str(tiny_checkpoint))


@pytest.fixture(scope="module")
def handle(settings: ModelSettings) -> Iterator[Any]:
    ray.init(num_cpus=4, num_gpus=1, include_dashboard=False, log_to_driver=False)
    encoder = EncoderSettings(num_gpus=0.5, max_graph_tiles=17)
    bound = EncoderPool.options(ray_actor_options={"num_cpus": 0.1, "num_gpus": 0.5}, max_ongoing_requests=1000)
    yield serve.run(bound.bind(settings, encoder), route_prefix=None).options(stream=True)
    serve.shutdown()
    ray.shutdown()


async def test_concurrent_requests_are_encoded_as_on_the_cpu(handle: Any, settings: ModelSettings) -> None:
    geometry, weights = load_weights(settings, torch.float32, torch.device("cpu"))
    model = Llama4VisionEncoder(geometry, weights, TorchOps(geometry, torch.float32, torch.device("cpu")))
    requests = [shards(*sizes) for sizes in ([1], [17], [5, 1], [3, 16, 17], [40], *([[2]] * 20))]
    tiles = [random_tiles(sum(image.tiles for image in images)) for images in requests]
    answers = await asyncio.gather(*(encode(handle, t, images) for t, images in zip(tiles, requests, strict=True)))
    for batch, images, (arrays, meta) in zip(tiles, requests, answers, strict=True):
        assert meta.images == tuple(images)
        assert meta.dtype == "bfloat16"
        rows = torch.from_numpy(np.concatenate(arrays)).view(torch.bfloat16)
        assert relative_error(rows, model(torch.from_numpy(batch))) <= 2e-2
    assert (await handle.options(stream=False).stats.remote())["queued_tiles"] == 0
