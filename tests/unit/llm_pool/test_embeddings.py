"""What comes from an encoder reaches vLLM unchanged, or not at all."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from encoder_pool.wire import EmbeddingDtype, HandOff, ImageShard
from llm_pool.embeddings import EmbeddingSpec, check_hand_off, rebuild
from llm_pool.errors import EmbeddingError, EncoderMismatchError

WIDTH = 24
PER_TILE = 9
SPEC = EmbeddingSpec(width=WIDTH, tokens_per_tile=PER_TILE, max_grid=16, dtype="bfloat16", fingerprint="f")
FLOAT = replace(SPEC, dtype="float32")


def random_array(rows: int, dtype: EmbeddingDtype, seed: int | None = None) -> tuple[np.ndarray, torch.Tensor]:
    """The array as it travels, read-only as from the object store, and what it stands for."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    tensor = torch.randn(rows, WIDTH, generator=generator).to(getattr(torch, dtype))
    array = (tensor.view(torch.uint16) if dtype == "bfloat16" else tensor).numpy().copy()
    array.flags.writeable = False
    return array, tensor


def hand_off(*images: ImageShard, dtype: EmbeddingDtype = "bfloat16", fingerprint: str = "f") -> HandOff:
    return HandOff(dtype, fingerprint, images)


def arrive(of: HandOff, arrays: Sequence[np.ndarray], spec: EmbeddingSpec) -> list[torch.Tensor]:
    """Both checks, as a decoder makes them."""
    check_hand_off(of, spec)
    return rebuild(of.images, arrays, spec)


ONE = ImageShard("one", 1, (1, 1))
WIDE = ImageShard("wide", 4, (1, 3))
TALL = ImageShard("tall", 4, (3, 1))


@pytest.mark.parametrize("spec", [SPEC, FLOAT], ids=lambda spec: spec.dtype)
def test_values_arrive_bit_for_bit_in_prompt_order(spec: EmbeddingSpec) -> None:
    arrays, tensors = zip(*(random_array(image.tiles * PER_TILE, spec.dtype) for image in (WIDE, ONE)), strict=True)
    embeddings = arrive(hand_off(WIDE, ONE, dtype=spec.dtype), arrays, spec)
    for values, array, tensor in zip(embeddings, arrays, tensors, strict=True):
        assert values.dtype == getattr(torch, spec.dtype)
        assert torch.equal(values, tensor)
        assert values.data_ptr() == array.ctypes.data, "an unsharded image must not be copied"


def test_shards_of_an_image_are_joined_in_order() -> None:
    (a, ta), (b, tb), (c, tc) = (random_array(rows * PER_TILE, "bfloat16") for rows in (1, 3, 1))
    wide, one = arrive(hand_off(WIDE, ONE), [a, b, c], SPEC)
    assert torch.equal(wide, torch.cat([ta, tb]))
    assert torch.equal(one, tc)


@pytest.mark.parametrize(
    ("name", "images", "rows"),
    [
        ("a row too few", [ONE], [PER_TILE - 1]),
        ("a row too many", [ONE], [PER_TILE + 1]),
        ("no array", [ONE], []),
        ("no rows", [ONE], [0]),
        ("an array too many", [ONE], [PER_TILE, PER_TILE]),
        ("shards that do not meet the image's end", [WIDE, ONE], [3 * PER_TILE, 2 * PER_TILE]),
        ("tiles of another grid", [replace(WIDE, aspect=(2, 2))], [4 * PER_TILE]),
        ("no global tile", [replace(WIDE, tiles=3)], [3 * PER_TILE]),
        ("a global tile for one tile", [replace(ONE, tiles=2)], [2 * PER_TILE]),
        ("an empty grid", [replace(ONE, aspect=(0, 1))], [PER_TILE]),
        ("more tiles than the model takes", [ImageShard("x", 18, (1, 17))], [18 * PER_TILE]),
    ],
)
def test_wrong_rows_and_tiles_are_refused(name: str, images: list[ImageShard], rows: list[int]) -> None:
    arrays = [random_array(count, "bfloat16", seed=0)[0] for count in rows]
    with pytest.raises(EmbeddingError):
        arrive(hand_off(*images), arrays, SPEC)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((PER_TILE, WIDTH // 2), np.uint16),
        np.zeros((PER_TILE, WIDTH + 1), np.uint16),
        np.zeros(PER_TILE * WIDTH, np.uint16),
        np.zeros((1, PER_TILE, WIDTH), np.uint16),
        np.zeros((PER_TILE, WIDTH), np.float32),
        np.zeros((PER_TILE, WIDTH), np.int16),
        np.uint16(3),
        "text",
        None,
    ],
    ids=["narrow", "broad", "flat", "3-d", "float32", "int16", "scalar", "text", "none"],
)
def test_wrong_shapes_and_dtypes_are_refused(array: Any) -> None:
    with pytest.raises(EmbeddingError):
        arrive(hand_off(ONE), [array], SPEC)


def test_embeddings_of_another_dtype_than_the_engines_are_refused() -> None:
    array, _ = random_array(PER_TILE, "float32")
    with pytest.raises(EmbeddingError, match="float32"):
        arrive(hand_off(ONE, dtype="float32"), [array], SPEC)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("spec", [SPEC, FLOAT], ids=lambda spec: spec.dtype)
def test_one_value_that_is_not_finite_is_found_anywhere(spec: EmbeddingSpec, bad: float) -> None:
    _, tensor = random_array(PER_TILE, spec.dtype)
    for place in np.random.default_rng().integers(0, tensor.numel(), 20):
        spoilt = tensor.clone()
        spoilt.view(-1)[int(place)] = bad
        array = (spoilt.view(torch.uint16) if spec.dtype == "bfloat16" else spoilt).numpy()
        with pytest.raises(EmbeddingError, match="not finite"):
            arrive(hand_off(ONE, dtype=spec.dtype), [array], spec)


def test_the_largest_finite_values_are_taken() -> None:
    tensor = torch.full((PER_TILE, WIDTH), torch.finfo(torch.bfloat16).max, dtype=torch.bfloat16)
    tensor[::2] *= -1
    arrive(hand_off(ONE), [tensor.view(torch.uint16).numpy()], SPEC)


def test_other_vision_weights_are_a_mismatch_before_anything_else() -> None:
    with pytest.raises(EncoderMismatchError) as caught:
        arrive(hand_off(ONE, fingerprint="g", dtype="float32"), [], SPEC)
    assert caught.value.status == 503
    assert caught.value.code == "encoder_mismatch"


def test_every_case_that_must_not_reach_the_engine_is_refused_and_good_ones_are_not() -> None:
    # The tiles of a wide and a tall picture cannot be told apart by rows: only the grid that comes along can.
    array, tensor = random_array(4 * PER_TILE, "bfloat16")
    for image in (WIDE, TALL):
        assert torch.equal(arrive(hand_off(image), [array], SPEC)[0], tensor)
