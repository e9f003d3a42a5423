"""Embeddings that clients send to a running application which takes them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save

from encoder_pool.checkpoint import read_geometry
from encoder_pool.settings import ModelSettings
from router.tiling import Tiler
from tests.chat import post
from tests.pictures import npy, part, picture
from tests.vision_reference import make_reference

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CASES = Path(__file__).parents[2] / "cases"
EMBEDDINGS = [case for case in json.loads((CASES / "manifest.json").read_text()) if case["send"] == "embedding"]
LOGPROBS = {"max_tokens": 8, "logprobs": True}


def embedding_part(file: bytes, aspect: tuple[int, int] | None = None) -> dict[str, Any]:
    value = {"data": base64.b64encode(file).decode()} | ({"aspect_ratio": aspect} if aspect else {})
    return {"type": "image_embeds", "image_embeds": value}


@pytest.fixture(scope="module")
def own_encoder(tiny_checkpoint) -> Callable[[Image.Image], tuple[torch.Tensor, tuple[int, int]]]:
    """A client's: transformers' model in float32; a picture to its (embedding, aspect)."""
    model = ModelSettings(source=str(tiny_checkpoint))
    stored = [item for path in tiny_checkpoint.glob("*.safetensors") for item in load_file(path).items()]
    tensors = {name: tensor.float() for name, tensor in stored if not name.startswith("language_model.")}
    reference, tiler = make_reference(read_geometry(model), tensors), Tiler(model)

    def encode(image: Image.Image) -> tuple[torch.Tensor, tuple[int, int]]:
        tiles = tiler.tile(image)
        return reference(tiles.pixels), tiles.aspect

    return encode


@pytest.mark.parametrize("size", [(336, 336), (700, 300), (300, 700)])
@pytest.mark.parametrize("kind", ["npy", "safetensors"])
def test_the_answer_is_that_to_the_picture(strict, own_encoder, size, kind):
    image = picture(60, size)
    rows, aspect = own_encoder(image)
    file = npy(rows.numpy()) if kind == "npy" else save({"embedding": rows.bfloat16()})
    seen = post(strict, part(image), "What?", **LOGPROBS).json()
    sent = post(strict, embedding_part(file, aspect), "What?", **LOGPROBS).json()
    assert sent["usage"]["prompt_tokens"] == seen["usage"]["prompt_tokens"]
    first, second = ([token["logprob"] for token in one["choices"][0]["logprobs"]["content"]] for one in (seen, sent))
    # bfloat16 against float32.
    assert abs(first[0] - second[0]) < 0.05


def test_pictures_and_embeddings_in_one_request(strict, own_encoder):
    image = picture(61)
    rows, aspect = own_encoder(image)
    answer = post(strict, part(picture(62)), embedding_part(npy(rows.numpy()), aspect), "Compare.")
    assert answer.status_code == 200
    both = post(strict, part(picture(62)), part(image), "Compare.")
    assert answer.json()["usage"]["prompt_tokens"] == both.json()["usage"]["prompt_tokens"]


@pytest.mark.parametrize("case", EMBEDDINGS, ids=lambda case: case["file"])
def test_cases(strict, case):
    file, aspect = CASES / case["file"], case["expect"].get("aspect")
    if file.suffix == ".json":
        said = json.loads(file.read_text())
        content, aspect = npy(np.zeros((said["rows"], 128), np.float32)), said["aspect"]
    else:
        content = file.read_bytes()
    answer = post(strict, embedding_part(content, aspect), "What?")
    assert answer.status_code in case["expect"].get("status_any", [case["expect"].get("status", 200)]), answer.text
    if answer.status_code != 200:
        assert answer.json()["error"]["param"] == "messages[0].content[0]"
        assert answer.json()["error"]["code"] == "bad_embeddings"
    assert post(strict, "Hello?").status_code == 200


def test_without_its_aspect_a_large_one_is_refused(strict):
    answer = post(strict, embedding_part((CASES / "emb" / "five_tiles.npy").read_bytes()), "What?")
    assert answer.status_code == 400
