import pytest

from router.errors import ApiError
from router.request_checks import check_request

HELLO = {"messages": [{"role": "user", "content": "hi"}]}
PROMPT = {"prompt": "hi"}
INPUT = {"input": "hi"}


@pytest.mark.parametrize(
    ("endpoint", "good", "change", "param"),
    [
        ("chat", HELLO, {"messages": "x"}, "messages"),
        ("chat", HELLO, {"temperature": "hot"}, "temperature"),
        ("chat", HELLO, {"messages": [*HELLO["messages"], {"role": "boss", "content": "x"}]}, "messages[1].role"),
        ("chat", HELLO, {"stream_options": {"include_usage": True}}, "stream_options"),
        ("chat", HELLO, {"tools": [{"type": "function"}], "tool_choice": "auto"}, "tools[0].function"),
        ("chat", HELLO, {"kv_transfer_params": {"prompt_token_ids": [1]}}, "kv_transfer_params"),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}, {"echo": True}, "echo"),
        ("chat", HELLO, {"messages": []}, "messages"),
        ("chat", HELLO, {"messages": None}, "messages"),
        ("completions", PROMPT, {"prompt": []}, "prompt"),
        ("responses", INPUT, {"input": []}, "input"),
        ("chat", HELLO, {"messages": [{"content": "x"}]}, "messages[0].role"),
        ("chat", HELLO, {"model": 5}, "model"),
        ("chat", HELLO, {"n": 5}, "n"),
        ("chat", HELLO, {"n": "5"}, "n"),
        ("completions", PROMPT, {"n": 2, "prompt": ["a", "b", "c"]}, "n"),
        ("completions", {"prompt": [1, 2, 3, 4, 5]}, {"n": 5}, "n"),
        ("completions", PROMPT, {"max_tokens": "x"}, "max_tokens"),
        ("completions", PROMPT, {"prompt_embeds": "x"}, "prompt_embeds"),
        ("responses", INPUT, {"background": True}, "background"),
        ("responses", INPUT, {"prompt": {"id": "x"}}, "prompt"),
        ("tokenize", PROMPT, {"prompt": 7}, "prompt"),
        ("tokenize", HELLO, {"messages": [{"role": "boss", "content": "x"}]}, "messages[0].role"),
        ("detokenize", {"tokens": [1]}, {"tokens": [-1]}, "tokens[0]"),
    ],
)
def test_vllms_request_model_decides(endpoint, good, change, param):
    check_request(endpoint, good, 4)
    with pytest.raises(ApiError) as caught:
        check_request(endpoint, good | change, 4)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_the_clients_body_is_left_as_it_is():
    body = {"input": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}]}
    check_request("responses", body, 4)
    assert body["input"][0]["content"] == [{"type": "output_text", "text": "x"}]


def test_what_is_no_field_of_the_endpoint_may_be_anything() -> None:
    body = {"input": "Hi", "n": "one", "messages": [], "echo": True}
    check_request("responses", body, 128)
    check_request("responses", body | {"messages": [1]}, 128)
