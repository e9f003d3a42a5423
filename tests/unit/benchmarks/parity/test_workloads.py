"""Requests are the same for every server, different from each other, and of the sizes that they claim."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.parity.sizes import TINY
from benchmarks.parity.workloads import PICTURES, SHARES, WORKLOADS, picture_url, write_requests
from encoder_pool.settings import ModelSettings
from router.tiling import Tiler


def contents(name: str, count: int, seed: int, path: Path) -> list[list[dict]]:
    write_requests(WORKLOADS[name], count, seed, path)
    return [json.loads(line)["content"] for line in path.read_text().splitlines()]


def test_one_seed_is_one_sequence_of_different_requests(tmp_path: Path) -> None:
    first = contents("mixed chat", 30, 1, tmp_path / "a.jsonl")
    assert first == contents("mixed chat", 30, 1, tmp_path / "b.jsonl")
    assert first != contents("mixed chat", 30, 2, tmp_path / "c.jsonl")
    assert len({json.dumps(part) for content in first for part in content}) == sum(map(len, first))


def test_a_mixture_has_its_share_of_pictures(tmp_path: Path) -> None:
    with_pictures = sum(len(content) > 1 for content in contents("mixed chat", 200, 3, tmp_path / "a.jsonl"))
    assert 20 <= with_pictures <= 60
    assert all(len(content) == 1 for content in contents("text only", 20, 3, tmp_path / "b.jsonl"))
    assert all(len(content) == 5 for content in contents("four pictures", 2, 3, tmp_path / "c.jsonl"))


def test_the_shares_add_up() -> None:
    assert sum(SHARES.values()) == pytest.approx(1)
    assert SHARES.keys() <= PICTURES.keys()


@pytest.fixture(scope="module")
def tiler(tmp_path_factory: pytest.TempPathFactory) -> Tiler:
    TINY.write(folder := tmp_path_factory.mktemp("checkpoint"))
    return Tiler(ModelSettings(source=str(folder), load_format="dummy"))


@pytest.mark.parametrize("tiles", PICTURES)
def test_pictures_have_their_number_of_tiles(tiler: Tiler, tiles: int) -> None:
    url = picture_url(PICTURES[tiles], np.random.default_rng())
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as picture:
        assert len(tiler.tile(picture).pixels) == tiles
