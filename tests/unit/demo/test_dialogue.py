"""Token ids for training are those of Llama 4's processor; only answers are learned."""

from __future__ import annotations

from random import Random

import pytest
from PIL import Image

from demo.architecture import TILE_SIZE, build_processor
from demo.dialogue import DialogueEncoder, messages
from demo.examples import training_example
from demo.tokenizer import build_tokenizer


@pytest.fixture(scope="module")
def processor():
    return build_processor(build_tokenizer())


@pytest.fixture(scope="module")
def encode(processor):
    return DialogueEncoder(processor.tokenizer, processor.chat_template)


@pytest.mark.parametrize("load", ["one", "few", "many"])
def test_ids_are_those_of_the_processor(processor, encode, load):
    rng = Random()
    for _ in range(5):
        example = training_example(rng, load)
        images = [Image.new("RGB", (p.columns * TILE_SIZE, p.rows * TILE_SIZE)) for p in example.pictures]
        text = processor.apply_chat_template(messages(example), tokenize=False)
        expected = processor(text=text, images=images or None, add_special_tokens=False)["input_ids"][0]
        assert encode(example).ids.tolist() == expected


def test_a_prompt_is_a_prefix_of_the_conversation_it_begins(processor, encode):
    example = training_example(Random(), "one")
    written = messages(example)
    prompt = processor.apply_chat_template(written[:-1], tokenize=False, add_generation_prompt=True)
    whole = processor.apply_chat_template(written, tokenize=False)
    ids = processor.tokenizer.encode(prompt, add_special_tokens=False)
    assert processor.tokenizer.encode(whole, add_special_tokens=False)[: len(ids)] == ids


def test_answers_and_their_ends_are_learned_and_nothing_else(processor, encode):
    for load in ("one", "few"):
        example = training_example(Random(), load)
        tokens = encode(example)
        learned = processor.tokenizer.decode(tokens.ids[tokens.learned])
        assert learned == "".join(f"{turn.question.answer}<|eot|>" for turn in example.turns)
