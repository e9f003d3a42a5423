"""Image parts of chat messages, filled for vLLM."""

from typing import Any

import pytest
import torch
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

from llm_pool.embeddings import ImageEmbedding
from llm_pool.errors import EmbeddingError
from llm_pool.image_parts import fill_image_parts

WIDE = ImageEmbedding("aaa", torch.zeros(4, 1), 4, (1, 3))
ONE = ImageEmbedding("bbb", torch.zeros(1, 1), 1, (1, 1))


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
    fill_image_parts(messages, [WIDE, ONE, WIDE], ["t0", "t1", "t2"])
    content: Any = messages[1]["content"]
    assert content[0] == text("a")
    assert content[1] == {
        "type": "image_embeds",
        "uuid": "aaa",
        "image_embeds": {"image_embeds": "t0", "aspect_ratios": [1, 3], "patches_per_image": [4]},
    }
    assert content[2] == "plain"
    assert content[3]["image_embeds"]["image_embeds"] == "t1"
    assert messages[3]["content"][0]["image_embeds"]["image_embeds"] == "t2"  # type: ignore[index]
    assert messages[0] == {"role": "system", "content": "be brief"}


def test_vllms_request_model_takes_what_was_filled() -> None:
    messages = [{"role": "user", "content": [part(0)]}]
    fill_image_parts(messages, [WIDE], ["t0"])
    request = ChatCompletionRequest.model_validate({"messages": messages})
    assert request.model_dump()["messages"] == messages


@pytest.mark.parametrize("indices", [[], [1], [0, 0], [1, 0], [0, 1, 2], ["0", 1], [None, None]], ids=str)
def test_parts_that_do_not_match_the_images_are_refused(indices: list[Any]) -> None:
    messages = [{"role": "user", "content": [part(index) for index in indices]}]
    with pytest.raises(EmbeddingError):
        fill_image_parts(messages, [WIDE, ONE], ["t0", "t1"])


@pytest.mark.parametrize("messages", [None, 3, "text", [], [3, None], [{"content": 3}], [{"role": "user"}]])
def test_malformed_messages_are_left_to_vllm(messages: Any) -> None:
    fill_image_parts(messages, [], [])
