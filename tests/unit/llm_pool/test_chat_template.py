"""The chat template writes Llama 4's format and loses no text and no picture, whoever sends them."""

from __future__ import annotations

import itertools
from functools import partial
from keyword import iskeyword

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm.renderers.hf import _detect_content_format
from vllm.tool_parsers import ToolParserManager

from demo.tokenizer import build_tokenizer
from llm_pool.chat_template import CHAT_TEMPLATE

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"} | dict.fromkeys(
    ("tool", "function"), "ipython"
)


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="module")
def render(tokenizer):
    def render(messages, **kwargs):
        template = CHAT_TEMPLATE.read_text()
        return tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, **kwargs)

    return render


def message(role: str, content: str) -> str:
    return f"<|header_start|>{role}<|header_end|>\n\n{content}<|eot|>"


def called(name: str, arguments) -> dict:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


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


def test_vllm_hands_it_content_lists():
    # Else it would put the pictures of a message before its text.
    assert _detect_content_format(CHAT_TEMPLATE.read_text(), default="string") == "openai"


@pytest.mark.parametrize("role", ROLES)
def test_parts_keep_their_order_in_every_role(render, role):
    parts = [
        {"type": "text", "text": "one "},
        {"type": "image"},
        {"type": "text", "text": " two "},
        {"type": "image"},
        "three",
    ]
    assert render([{"role": role, "content": parts}]) == "<|begin_of_text|>" + message(
        ROLES[role], "one <|image|> two <|image|>three"
    )


def test_text_is_not_trimmed(render):
    assert message("user", "\n  indented \n") in render([{"role": "user", "content": "\n  indented \n"}])


@pytest.mark.parametrize("extra", [{"tool_calls": []}, {"tool_calls": None}, {}])
def test_an_answer_without_calls_is_plain(render, extra):
    assert message("assistant", "Yes.") in render([{"role": "assistant", "content": "Yes.", **extra}])


@pytest.mark.parametrize("content", [None, "", []])
def test_empty_content_is_an_empty_message(render, content):
    assert message("assistant", "") in render([{"role": "assistant", "content": content}])


@pytest.mark.parametrize("first", [None, "system", "developer", "user", "assistant"])
def test_tools_stand_in_the_first_system_turn(render, first):
    before = [{"role": first, "content": [{"type": "image"}, {"type": "text", "text": "First."}]}] if first else []
    text = render([*before, {"role": "user", "content": "Weather?"}], tools=[TOOL])
    turns = text.split("<|eot|>")
    assert turns[0].startswith("<|begin_of_text|><|header_start|>system<|header_end|>\n\n")
    assert '"name": "weather"' in turns[0]
    assert len(turns) == len(before) + 2 + (first not in ("system", "developer"))
    assert text.count("<|image|>First.") == len(before)


def test_calls_follow_the_words_of_their_message(render):
    text = render(
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "I look.", "tool_calls": [called("weather", {"city": "Paris"})]},
            {"role": "tool", "content": "sunny", "tool_call_id": "1"},
        ]
    )
    assert message("assistant", 'I look.[weather(city="Paris")]') in text
    assert text.endswith(message("ipython", "sunny"))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.from_regex(r"[a-z]{2,8}", fullmatch=True).filter(lambda name: not iskeyword(name))


@given(calls=st.lists(st.tuples(NAMES, st.dictionaries(NAMES, VALUES, max_size=3)), min_size=1, max_size=3))
def test_calls_are_written_as_python_reads_them(render, calls):
    text = render([{"role": "assistant", "content": None, "tool_calls": list(itertools.starmap(called, calls))}])
    written = text.removeprefix("<|begin_of_text|><|header_start|>assistant<|header_end|>\n\n").removesuffix("<|eot|>")
    names = {name: partial(lambda name, /, **arguments: (name, arguments), name) for name, _ in calls}
    assert eval(written, {"__builtins__": {}}, names) == calls


def test_vllms_parser_reads_them(render, tokenizer):
    text = render([{"role": "assistant", "tool_calls": [called("weather", {"city": "Paris"}), called("now", {})]}])
    parser = ToolParserManager.get_tool_parser("llama4_pythonic")(tokenizer)
    found = parser.extract_tool_calls(text.split("\n\n")[1].removesuffix("<|eot|>"), None)
    assert [(call.function.name, call.function.arguments) for call in found.tool_calls] == [
        ("weather", '{"city": "Paris"}'),
        ("now", "{}"),
    ]


def test_an_unknown_part_is_an_error(render):
    with pytest.raises(Exception, match="audio is not known"):
        render([{"role": "user", "content": [{"type": "audio"}]}])
