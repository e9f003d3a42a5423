"""The training forward pass is the model that is saved: same logits as transformers computes by itself."""

from __future__ import annotations

from copy import deepcopy
from random import Random

import pytest
import torch
from transformers import Llama4ForConditionalGeneration

from demo.architecture import build_config, build_processor
from demo.batches import conversation_step, draw_tiles
from demo.dialogue import DialogueEncoder
from demo.digits import digits
from demo.examples import training_example
from demo.learner import Learner
from demo.make_checkpoint import TINY
from demo.sprites import plain_sprites
from demo.tokenizer import build_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="module")
def encode(tokenizer):
    return DialogueEncoder(tokenizer, build_processor(tokenizer).chat_template)


def test_losses_fall_and_every_parameter_learns(tokenizer, encode):
    torch.manual_seed(0)
    rng = Random(0)
    sprites = plain_sprites(digits("train"), seed=0)
    learner = Learner(Llama4ForConditionalGeneration(build_config(TINY, tokenizer, "float32")))
    examples = [training_example(rng, "one"), training_example(rng, "one"), training_example(rng, "few")]
    step = conversation_step(examples, encode, sprites.choices(), rng)
    tiles = draw_tiles(step.pictures, sprites.masks)
    optimizer = torch.optim.AdamW(learner.parameters(), 2e-3)
    losses = []
    for _ in range(4):
        result = learner(step, tiles)
        optimizer.zero_grad()
        result.loss.backward()
        optimizer.step()
        losses.append(result.loss.item())
    assert losses[-1] < losses[0]
    still = [name for name, parameter in learner.named_parameters() if parameter.grad is None]
    assert still == []


def test_what_it_calls_right_is_what_transformers_would_say(tokenizer, encode):
    rng = Random()
    sprites = plain_sprites(digits("train"), seed=0)
    model = Llama4ForConditionalGeneration(build_config(TINY, tokenizer, "float32")).eval()
    learner = Learner(deepcopy(model)).eval()  # which replaces a part of what it is given
    example = training_example(rng, "few")
    step = conversation_step([example], encode, sprites.choices(), rng)
    tiles = draw_tiles(step.pictures, sprites.masks)
    tokens = encode(example)
    ids, learned = torch.from_numpy(tokens.ids)[None], torch.from_numpy(tokens.learned)[None]
    with torch.inference_mode():
        answer_loss, _, _, _, correct = learner._read(step.text, learner.embed_tiles(tiles))
        logits = model(input_ids=ids, pixel_values=tiles.float() / 127.5 - 1).logits[:, :-1][learned[:, 1:]]
    expected = torch.nn.functional.cross_entropy(logits, ids[learned])
    assert answer_loss == pytest.approx(expected.item(), abs=1e-4)
    assert len(correct) == len(example.turns)
