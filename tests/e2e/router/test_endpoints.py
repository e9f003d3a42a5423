"""The endpoints beside chat completions, with the `openai` package where it has them."""

from __future__ import annotations

import httpx
import openai
import pytest

from tests.pictures import data_url, part, picture, user


@pytest.fixture(scope="module")
def client(tessera):
    return openai.OpenAI(base_url=f"{tessera.url}/v1", api_key="none", max_retries=0)


def image(seed: int, size: tuple[int, int] = (336, 336), **more) -> dict:
    return {"type": "input_image", "image_url": data_url(picture(seed, size))} | more


def asked(*content: dict | str) -> dict:
    return {
        "role": "user",
        "content": [{"type": "input_text", "text": c} if isinstance(c, str) else c for c in content],
    }


def respond(client, tessera, items, **more):
    return client.responses.create(
        model=tessera.model, input=items, temperature=0, **{"max_output_tokens": 8, "store": False} | more
    )


class TestCompletions:
    def test_a_prompt_and_several(self, client, tessera):
        one = client.completions.create(model=tessera.model, prompt="Say", max_tokens=4, temperature=0)
        assert one.usage.completion_tokens == 4
        two = client.completions.create(model=tessera.model, prompt=["Say", "Go"], max_tokens=4, temperature=0)
        assert [choice.index for choice in two.choices] == [0, 1]
        assert two.choices[0].text == one.choices[0].text

    def test_a_stream_says_the_same(self, client, tessera):
        asked = {"model": tessera.model, "prompt": "Say", "max_tokens": 4, "temperature": 0}
        whole = client.completions.create(**asked)
        chunks = list(client.completions.create(**asked, stream=True))
        assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text

    def test_a_control_token_is_refused(self, client, tessera):
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model=tessera.model, prompt="<|image|>")
        assert caught.value.body["code"] == "special_token_in_text"
        assert caught.value.body["param"] == "prompt"


class TestResponses:
    def test_a_text(self, client, tessera):
        answer = respond(client, tessera, "Say something.")
        assert answer.status == "incomplete"
        assert answer.usage.output_tokens == 8
        assert answer.id.startswith("resp_")

    def test_a_picture_takes_its_tokens_as_in_a_chat(self, client, tessera):
        text = respond(client, tessera, [asked("What?")])
        with_picture = respond(client, tessera, [asked(image(1), "What?")])
        assert with_picture.usage.input_tokens - text.usage.input_tokens == 147
        chat = client.chat.completions.create(
            model=tessera.model, messages=[user(part(picture(1)), "What?")], max_tokens=2, temperature=0
        )
        assert with_picture.output_text.startswith(chat.choices[0].message.content)

    def test_a_turn_that_vllm_has_no_words_for_is_refused(self, client, tessera):
        said = {"type": "refusal", "refusal": "no"}
        turn = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [said]}
        with pytest.raises(openai.BadRequestError) as caught:
            respond(client, tessera, [asked("a"), turn, asked("b")])
        assert caught.value.body["param"] == "input"

    def test_pictures_of_several_turns_and_low_detail(self, client, tessera):
        items = [asked(image(1, (672, 672)), "a"), {"role": "assistant", "content": "b"}, asked(image(2), "c")]
        many = respond(client, tessera, items)
        items[0]["content"][0]["detail"] = "low"
        assert many.usage.input_tokens - respond(client, tessera, items).usage.input_tokens == 4 * 144 + 4

    def test_a_picture_that_a_tool_returned(self, client, tessera):
        def with_output(output):
            call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
            items = [asked("Look."), call, {"type": "function_call_output", "call_id": "c", "output": output}]
            return respond(client, tessera, items).usage.input_tokens

        text = {"type": "input_text", "text": "here"}
        assert with_output([text, image(3)]) - with_output([text]) == 147

    def test_a_stream_ends_with_the_whole_answer(self, client, tessera):
        whole = respond(client, tessera, [asked(image(1), "What?")])
        events = list(respond(client, tessera, [asked(image(1), "What?")], stream=True))
        assert events[0].type == "response.created"
        assert events[-1].type == "response.completed"
        assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
        assert events[-1].response.usage.input_tokens == whole.usage.input_tokens

    def test_an_error_before_the_first_token_of_a_stream_has_its_status(self, client, tessera):
        with pytest.raises(openai.BadRequestError) as caught:
            respond(client, tessera, "word " * 30000, stream=True)
        assert caught.value.body["param"] == "input"

    @pytest.mark.parametrize(
        ("bad", "param"),
        [
            (image(1) | {"image_url": "data:image/png;base64,AAAA"}, "input[0].content[1]"),
            (image(1) | {"file_id": "f"}, "input[0].content[1].file_id"),
        ],
    )
    def test_a_bad_picture_is_named(self, client, tessera, bad, param):
        with pytest.raises(openai.BadRequestError) as caught:
            respond(client, tessera, [asked("x", bad)])
        assert caught.value.body["param"] == param


class TestTokens:
    def test_there_and_back(self, tessera):
        there = httpx.post(f"{tessera.url}/tokenize", json={"prompt": "a cat <|image|>"}, timeout=60).json()
        assert there["count"] == len(there["tokens"])
        back = httpx.post(f"{tessera.url}/detokenize", json={"tokens": there["tokens"]}, timeout=60).json()
        assert back["prompt"].endswith("a cat <|image|>")

    def test_a_chat_with_a_picture_has_the_tokens_of_its_prompt(self, client, tessera):
        messages = [user(part(picture(1, (700, 300))), "What?")]
        counted = httpx.post(f"{tessera.url}/tokenize", json={"messages": messages}, timeout=60).json()["count"]
        answer = client.chat.completions.create(model=tessera.model, messages=messages, max_tokens=1)
        assert counted == answer.usage.prompt_tokens

    def test_an_unknown_token(self, tessera):
        answer = httpx.post(f"{tessera.url}/detokenize", json={"tokens": [2**40]}, timeout=60)
        assert answer.status_code == 400


def test_the_version(tessera):
    assert httpx.get(f"{tessera.url}/version").json()["version"].startswith("0.32.")


def test_the_openapi_document_has_every_endpoint(tessera):
    paths = httpx.get(f"{tessera.url}/openapi.json").json()["paths"]
    assert {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize", "/detokenize"} <= paths.keys()
