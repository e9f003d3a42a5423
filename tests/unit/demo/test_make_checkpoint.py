"""The random checkpoint: loads in transformers, is the same for a seed, and its answer hangs on every tile."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from transformers import AutoProcessor, Llama4ForConditionalGeneration

from demo.make_checkpoint import make_checkpoint

TILE = 336


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint(directory, seed=0)
    return directory


@pytest.fixture(scope="module")
def processor(checkpoint):
    return AutoProcessor.from_pretrained(checkpoint)


@pytest.fixture(scope="module")
def model(checkpoint):
    return Llama4ForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32)


def random_picture(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """uint8 [rows * 336, columns * 336, 3] of coloured squares, 48 pixels wide."""
    squares = rng.integers(0, 256, (rows * 7, columns * 7, 3), dtype=np.uint8)
    return squares.repeat(48, axis=0).repeat(48, axis=1)


def log_probabilities(model, processor, picture: np.ndarray) -> torch.Tensor:
    """float32 [vocabulary], of the answer's first token."""
    content = [{"type": "image", "image": Image.fromarray(picture)}, {"type": "text", "text": "What do you see?"}]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    with torch.inference_mode():
        logits = model(**inputs.to(model.device, dtype=model.dtype)).logits
    return logits[0, -1].float().log_softmax(-1)


def test_the_same_seed_gives_the_same_bytes(checkpoint, tmp_path):
    make_checkpoint(tmp_path / "again", seed=0)
    make_checkpoint(tmp_path / "other", seed=1)
    names = sorted(path.name for path in checkpoint.iterdir())
    assert names == sorted(path.name for path in (tmp_path / "again").iterdir())
    for name in names:
        assert (checkpoint / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    shard = next(name for name in names if name.endswith(".safetensors"))
    assert (checkpoint / shard).read_bytes() != (tmp_path / "other" / shard).read_bytes()


def test_it_is_small_and_its_last_shards_hold_text_alone(checkpoint):
    assert sum(path.stat().st_size for path in checkpoint.iterdir()) < 3_000_000
    index = json.loads((checkpoint / "model.safetensors.index.json").read_text())["weight_map"]
    shards = sorted(set(index.values()))
    vision = {file for name, file in index.items() if not name.startswith("language_model.")}
    assert len(shards) >= 2
    assert vision < set(shards)


def test_names_on_disk_are_those_of_published_checkpoints(checkpoint):
    index = json.loads((checkpoint / "model.safetensors.index.json").read_text())["weight_map"]
    expected = {
        "vision_model.patch_embedding.linear.weight",
        "vision_model.class_embedding",
        "vision_model.positional_embedding_vlm",
        "vision_model.model.layers.0.self_attn.q_proj.bias",
        "vision_model.vision_adapter.mlp.fc2.weight",
        "multi_modal_projector.linear_1.weight",
        "language_model.model.embed_tokens.weight",
        "language_model.model.layers.0.feed_forward.experts.gate_up_proj",
        "language_model.model.layers.0.feed_forward.router.weight",
        "language_model.model.layers.0.feed_forward.shared_expert.up_proj.weight",
        "language_model.lm_head.weight",
    }
    assert expected <= index.keys()


def test_float32_holds_the_same_numbers_unrounded(checkpoint, tmp_path):
    make_checkpoint(tmp_path, seed=0, dtype="float32")
    name = "multi_modal_projector.linear_1.weight"

    def read(directory):
        file = json.loads((directory / "model.safetensors.index.json").read_text())["weight_map"][name]
        with safe_open(directory / file, "pt") as tensors:
            return tensors.get_tensor(name)

    exact, rounded = read(tmp_path), read(checkpoint)
    assert (exact.dtype, rounded.dtype) == (torch.float32, torch.bfloat16)
    assert torch.equal(exact.bfloat16(), rounded)


@pytest.mark.parametrize(("rows", "columns", "tiles"), [(1, 1, 1), (1, 2, 3), (2, 2, 5), (4, 4, 17)])
def test_a_prompt_holds_144_embeddings_a_tile(processor, rows, columns, tiles):
    picture = Image.new("RGB", (columns * TILE, rows * TILE))
    inputs = processor(text="<|image|>", images=picture, return_tensors="pt")
    patch = processor.tokenizer.convert_tokens_to_ids("<|patch|>")
    assert inputs["pixel_values"].shape == (tiles, 3, TILE, TILE)
    assert (inputs["input_ids"] == patch).sum() == tiles * 144


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 2)])
def test_changing_any_one_tile_changes_the_answer(model, processor, rows, columns):
    rng = np.random.default_rng()
    picture = random_picture(rng, rows, columns)
    before = log_probabilities(model, processor, picture)
    likely = before.topk(10).indices
    for row in range(rows):
        for column in range(columns):
            changed = picture.copy()
            changed[row * TILE :][:TILE, column * TILE :][:, :TILE] = random_picture(rng, 1, 1)
            after = log_probabilities(model, processor, changed)
            assert (after - before)[likely].abs().max() > 0.02, (row, column)


def test_bfloat16_stays_close_to_float32(checkpoint, model, processor):
    halved = Llama4ForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.bfloat16)
    picture = random_picture(np.random.default_rng(), 2, 2)
    exact = log_probabilities(model, processor, picture)
    likely = exact.topk(10).indices
    rounded = log_probabilities(halved, processor, picture)
    assert (rounded - exact)[likely].abs().max() < 0.5


def test_answers_are_readable_and_as_long_as_asked_for(model, processor):
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": "Hello!"}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    answer = model.generate(**inputs, max_new_tokens=24, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    text = processor.decode(answer, skip_special_tokens=True)
    assert len(answer) == 24
    assert text.strip()
    assert text.isascii()
    assert text.isprintable()
