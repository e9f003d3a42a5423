"""Image parts of messages and of a response's input, filled for vLLM."""

from typing import Any

import pytest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_input_messages

from encoder_pool.wire import ImageShard
from llm_pool.embeddings import EmbeddingSpec
from llm_pool.errors import EmbeddingError
from llm_pool.image_parts import fill, vllm_parts
from llm_pool.stand_ins import stand_in

WIDE = ImageShard("aaa", 4, (1, 3))
ONE = ImageShard("bbb", 1, (1, 1))
SPEC = EmbeddingSpec(width=5, tokens_per_tile=9, max_grid=16, dtype="bfloat16", fingerprint="f")
OF_WIDE, OF_ONE = stand_in(36, 5, "bfloat16"), stand_in(9, 5, "bfloat16")


def part(index: Any) -> dict[str, Any]:
    return {"type": "image_embeds", "image_embeds": index}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def test_parts_are_filled_in_prompt_order_and_the_rest_is_left() -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [text("a"), part(0), "plain", part(1)]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": [part(2)]},
    ]
    fill(messages, vllm_parts([WIDE, ONE, WIDE], SPEC))
    content: Any = messages[1]["content"]
    assert content[0] == text("a")
    assert content[1] == {
        "type": "image_embeds",
        "uuid": "aaa",
        "image_embeds": {"image_embeds": OF_WIDE, "aspect_ratios": [1, 3], "patches_per_image": [4]},
    }
    assert content[2] == "plain"
    assert content[3]["image_embeds"]["image_embeds"] == OF_ONE
    assert messages[3]["content"][0]["image_embeds"]["image_embeds"] == OF_WIDE  # type: ignore[index]
    assert messages[0] == {"role": "system", "content": "be brief"}


def test_vllms_request_model_takes_what_was_filled() -> None:
    messages = [{"role": "user", "content": [part(0)]}]
    fill(messages, vllm_parts([WIDE], SPEC))
    request = ChatCompletionRequest.model_validate({"messages": messages})
    assert request.model_dump()["messages"] == messages


def test_a_responses_input_is_filled_after_its_validation() -> None:
    def image(index: int) -> dict[str, str]:
        return {"type": "input_image", "image_url": str(index), "detail": "auto"}

    request = ResponsesRequest.model_validate(
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "a"}, image(0)]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": [image(1)]},
            ]
        }
    )
    parts = vllm_parts([WIDE, ONE], SPEC)
    fill(request.input, parts)
    messages = construct_input_messages(request_input=request.input)
    assert messages[0]["content"][1] == parts[0]
    assert messages[2]["content"] == [parts[1]]


@pytest.mark.parametrize("indices", [[], [1], [0, 0], [1, 0], [0, 1, 2], ["0", 1], [None, None]], ids=str)
def test_parts_that_do_not_match_the_images_are_refused(indices: list[Any]) -> None:
    messages = [{"role": "user", "content": [part(index) for index in indices]}]
    with pytest.raises(EmbeddingError):
        fill(messages, vllm_parts([WIDE, ONE], SPEC))


@pytest.mark.parametrize("messages", [None, 3, "text", [], [3, None], [{"content": 3}], [{"role": "user"}]])
def test_malformed_messages_are_left_to_vllm(messages: Any) -> None:
    fill(messages, [])
