"""The demo chat template writes Llama 4's format and loses no text and no picture, whoever sends them."""

from __future__ import annotations

import pytest

from demo.architecture import build_processor
from demo.tokenizer import build_tokenizer


@pytest.fixture(scope="module")
def render():
    tokenizer = build_tokenizer()
    template = build_processor(tokenizer).chat_template

    def render(messages, **kwargs):
        return tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, **kwargs)

    return render


def message(role: str, content: str) -> str:
    return f"<|header_start|>{role}<|header_end|>\n\n{content}<|eot|>"


def test_turns_and_generation_prompt(render):
    text = render(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi."},
            {"role": "assistant", "content": "Hello!"},
            {"role": "user", "content": "Again."},
        ],
        add_generation_prompt=True,
    )
    assert text == (
        "<|begin_of_text|>"
        + message("system", "Be brief.")
        + message("user", "Hi.")
        + message("assistant", "Hello!")
        + message("user", "Again.")
        + "<|header_start|>assistant<|header_end|>\n\n"
    )


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_parts_keep_their_order_in_every_role(render, role):
    parts = [
        {"type": "text", "text": "one "},
        {"type": "image"},
        {"type": "text", "text": " two "},
        {"type": "image"},
    ]
    written = "ipython" if role == "tool" else role
    assert render([{"role": role, "content": parts}]) == "<|begin_of_text|>" + message(
        written, "one <|image|> two <|image|>"
    )


def test_text_is_not_trimmed(render):
    assert message("user", "\n  indented \n") in render([{"role": "user", "content": "\n  indented \n"}])


@pytest.mark.parametrize("arguments", [{"city": "Paris"}, '{"city": "Paris"}'])
def test_tool_calls_follow_the_words_of_their_message(render, arguments):
    call = {"type": "function", "function": {"name": "weather", "arguments": arguments}}
    text = render(
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "I look.", "tool_calls": [call]},
            {"role": "tool", "content": "sunny", "tool_call_id": "1"},
        ]
    )
    assert message("assistant", 'I look.{"name": "weather", "parameters": {"city": "Paris"}}') in text
    assert text.endswith(message("ipython", "sunny"))


@pytest.mark.parametrize("extra", [{"tool_calls": []}, {"tool_calls": None}, {}])
def test_an_answer_without_calls_is_plain(render, extra):
    assert message("assistant", "Yes.") in render([{"role": "assistant", "content": "Yes.", **extra}])


@pytest.mark.parametrize("content", [None, "", []])
def test_empty_content_is_an_empty_message(render, content):
    assert message("assistant", "") in render([{"role": "assistant", "content": content}])


def test_tools_come_first(render):
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    text = render([{"role": "user", "content": "Weather?"}], tools=[tool])
    assert text.index('"name": "weather"') < text.index(message("user", "Weather?"))


def test_an_unknown_part_is_an_error(render):
    with pytest.raises(Exception, match="audio is not known"):
        render([{"role": "user", "content": [{"type": "audio"}]}])
