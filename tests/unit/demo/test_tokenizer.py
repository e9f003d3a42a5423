"""The demo tokenizer: any text survives it, Llama 4's special tokens are single tokens, digits stay apart."""

from __future__ import annotations

import pytest

from demo.tokenizer import BOS, SPECIAL_TOKENS, build_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.mark.parametrize("text", ["Where is the red circle?", "naïve 東京 🙂", "  spaces\n\n\ttabs "])
def test_text_survives(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_special_tokens_are_single_tokens_and_hidden_from_answers(tokenizer):
    for token in SPECIAL_TOKENS:
        ids = tokenizer.encode(token, add_special_tokens=False)
        assert len(ids) == 1
        assert tokenizer.decode(ids, skip_special_tokens=True) == ""


def test_numbers_are_read_digit_by_digit(tokenizer):
    assert tokenizer.tokenize("4712") == ["4", "7", "1", "2"]


def test_the_words_of_the_demo_are_one_token_each(tokenizer):
    words = "Which picture shows the yellow triangle in the bottom right corner".split()
    assert len(tokenizer.tokenize(" ".join(words))) == len(words)


def test_plain_prompts_begin_with_bos(tokenizer):
    assert tokenizer.encode("red")[0] == tokenizer.convert_tokens_to_ids(BOS)


def test_building_twice_gives_the_same_tokenizer(tokenizer):
    assert build_tokenizer().backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
