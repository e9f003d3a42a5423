"""Embeddings that clients send, held against what would harm an engine."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from router.client_embeddings import ClientEmbeddings
from router.config import AppConfig
from router.errors import ApiError
from router.request_images import EmbeddingPart
from tests.pictures import npy

CASES = Path(__file__).parents[2] / "cases"
EMBEDDINGS = [
    case
    for case in json.loads((CASES / "manifest.json").read_text())
    if case["send"] == "embedding" and not case["file"].endswith(".json")
]
WIDTH = 128


@pytest.fixture(scope="module")
def reader(model):
    made = ClientEmbeddings(AppConfig.model_validate({"model": model, "router": {"max_image_bytes": 200_000}}), 16)
    assert made._spec.tokens_per_tile == 144
    # The cases are as wide as this.
    made._spec = made._spec.__class__(WIDTH, 144, 16, made._spec.dtype, "")
    return made


def part(file: bytes, aspect=(1, 1)) -> EmbeddingPart:
    return EmbeddingPart("messages[0].content[1]", base64.b64encode(file).decode(), aspect)


async def refusal(reader, one: EmbeddingPart) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await reader.read(one, "f")
    assert caught.value.status == 400
    assert caught.value.param == "messages[0].content[1]"
    return caught.value


@pytest.mark.parametrize("case", EMBEDDINGS, ids=lambda case: case["file"])
async def test_cases(reader, case):
    file = (CASES / case["file"]).read_bytes()
    if 200 in (case["expect"].get("status"), *case["expect"].get("status_any", [])):
        found = await reader.read(part(file, tuple(case["expect"].get("aspect", (1, 1)))), "f")
        assert found.rows.shape == (found.tiles * 144, WIDTH)
        assert found.rows.dtype == np.uint16
    else:
        await refusal(reader, part(file))


async def test_rows_do_not_tell_the_aspect(reader):
    file = npy(np.zeros((5 * 144, WIDTH), np.float16))
    for aspect in ((2, 2), (1, 4), (4, 1)):
        assert (await reader.read(part(file, aspect), "f")).tiles == 5
    for aspect in ((1, 1), (2, 3), (0, 4), (-2, -2), (1, 5), (10**9, 10**9)):
        await refusal(reader, part(file, aspect))
    names = {(await reader.read(part(file, aspect), "f")).identity for aspect in ((2, 2), (1, 4), (4, 1))}
    assert len(names) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
async def test_every_dtype_arrives_as_bfloat16(reader, dtype):
    values = torch.randn(144, WIDTH, generator=torch.Generator().manual_seed(0)).to(dtype)
    found = await reader.read(part(save({"x": values})), "f")
    assert torch.equal(torch.from_numpy(found.rows).view(torch.bfloat16), values.to(torch.bfloat16))


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"x" * 100,
        b"\x93NUMPY",
        npy(np.array([{}], dtype=object), allow_pickle=True),
        npy(np.zeros((144, WIDTH), np.int32)),
        npy(np.zeros((144, WIDTH), np.float64)),
        npy(np.asfortranarray(np.zeros((144, WIDTH), np.float32))),
        npy(np.zeros((144, WIDTH), np.float32))[:-4],
        npy(np.full((144, WIDTH), 1e39, np.float64).astype(np.float32)),
        npy(np.zeros((1, WIDTH), np.float32)).replace(b"(1, 128), ", b"(10000000000, 128), "),
        save({"a": torch.zeros(144, WIDTH), "b": torch.zeros(1)}),
        save({}),
        save({"a": torch.zeros(144, WIDTH, dtype=torch.int64)}),
        (2**63).to_bytes(8, "little") + b"{}",
        base64.b64decode("gASVCgAAAAAAAACMBHRlc3SULg=="),
    ],
    ids=range(15),
)
async def test_what_is_no_embedding(reader, file):
    assert (await refusal(reader, part(file))).code == "bad_embeddings"


async def test_size_and_encoding(reader):
    assert (await refusal(reader, part(bytes(300_000)))).code == "image_too_large"
    assert (await refusal(reader, EmbeddingPart("messages[0].content[1]", "!!", (1, 1)))).code == "bad_embeddings"


async def test_before_an_encoder_has_named_its_weights(reader):
    with pytest.raises(ApiError) as caught:
        await reader.read(part(npy(np.zeros((144, WIDTH), np.float32))), "")
    assert (caught.value.status, caught.value.code) == (503, "starting")
