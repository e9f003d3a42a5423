"""What people point at an OpenAI endpoint: the `openai` package, LangChain, LiteLLM, vLLM's load generator."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Literal

import litellm
import openai
import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from tests.pictures import part, picture, user

PICTURE = part(picture(1))
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {
            "type": "object",
            "properties": {"side": {"enum": ["left", "right"]}},
            "required": ["side"],
            "additionalProperties": False,
        },
    },
}


class Shape(BaseModel):
    colour: Literal["red", "blue"]
    large: bool


class TestOpenAI:
    @pytest.fixture(scope="class")
    def client(self, tessera):
        return openai.OpenAI(base_url=f"{tessera.url}/v1", api_key="none", max_retries=0)

    async def test_async_and_streamed(self, tessera):
        async with openai.AsyncOpenAI(base_url=f"{tessera.url}/v1", api_key="none", max_retries=0) as client:
            asked = {"model": tessera.model, "messages": [user(PICTURE, "What?")], "max_tokens": 4, "temperature": 0}
            whole = await client.chat.completions.create(**asked)
            text = ""
            async for chunk in await client.chat.completions.create(**asked, stream=True):
                text += chunk.choices[0].delta.content or ""
        assert text[:4] == whole.choices[0].message.content[:4]

    def test_structured_output(self, client, tessera):
        messages = [user(PICTURE, "Describe it.")]
        answer = client.chat.completions.parse(
            model=tessera.model, messages=messages, response_format=Shape, max_tokens=200
        )
        assert isinstance(answer.choices[0].message.parsed, Shape)
        response = client.responses.parse(
            model=tessera.model, input="Describe it.", text_format=Shape, max_output_tokens=200
        )
        assert isinstance(response.output_parsed, Shape)

    def test_a_tool_is_called(self, client, tessera):
        asked = {
            "model": tessera.model,
            "messages": [user(PICTURE, "Where?")],
            "tools": [TOOL],
            # With `required` a model of random weights lists calls until its tokens are at an end.
            "tool_choice": {"type": "function", "function": {"name": "look"}},
            "max_tokens": 100,
        }
        (call, *_) = client.chat.completions.create(**asked).choices[0].message.tool_calls
        assert call.function.name == "look"
        assert json.loads(call.function.arguments)["side"] in ("left", "right")
        with client.chat.completions.stream(**asked) as stream:
            for _ in stream:
                pass
            streamed = stream.get_final_completion().choices[0].message.tool_calls[0]
        assert json.loads(streamed.function.arguments)["side"] in ("left", "right")

    def test_a_tools_result_goes_back_with_a_picture(self, client, tessera):
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"side": "left"}'}}
        messages = [
            user(PICTURE, "Where?"),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "There:"}, part(picture(2))]},
        ]
        answer = client.chat.completions.create(
            model=tessera.model, messages=messages, tools=[TOOL], tool_choice="none", max_tokens=2
        )
        assert answer.usage.prompt_tokens > 2 * 147


class TestLangChain:
    @pytest.fixture(scope="class")
    def model(self, tessera):
        return ChatOpenAI(
            base_url=f"{tessera.url}/v1", api_key="none", model=tessera.model, max_retries=0, max_tokens=200
        )

    def test_a_picture_whole_and_streamed(self, model):
        question = HumanMessage([PICTURE, {"type": "text", "text": "What?"}])
        answer = model.invoke([question])
        assert answer.usage_metadata["input_tokens"] > 147
        assert "".join(chunk.text for chunk in model.stream([question]))

    def test_structured_output(self, model):
        question = HumanMessage([PICTURE, {"type": "text", "text": "Describe it."}])
        assert isinstance(model.with_structured_output(Shape).invoke([question]), Shape)

    def test_tools(self, model):
        answer = model.bind_tools([TOOL], tool_choice="look").invoke([HumanMessage("Where?")])
        assert answer.tool_calls[0]["name"] == "look"


class TestLiteLLM:
    def ask(self, tessera, *content, **more):
        return litellm.completion(
            model=f"openai/{tessera.model}",
            api_base=f"{tessera.url}/v1",
            api_key="none",
            messages=[user(*content)],
            max_tokens=8,
            **more,
        )

    def test_a_picture_whole_and_streamed(self, tessera):
        assert self.ask(tessera, PICTURE, "What?").usage.prompt_tokens > 147
        chunks = list(self.ask(tessera, PICTURE, "What?", stream=True))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    def test_an_error_is_of_its_kind(self, tessera):
        with pytest.raises(litellm.BadRequestError):
            self.ask(tessera, "What is <|image|>?")


# `vllm bench serve`; the command itself looks for a distribution called `vllm`, which the CPU build is not.
BENCH = (
    "import argparse; from vllm.benchmarks.serve import add_cli_args, main;"
    "parser = argparse.ArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
)


TEXTS = "--dataset-name random --backend openai --endpoint /v1/completions"
PICTURES = (
    "--dataset-name random-mm --backend openai-chat --endpoint /v1/chat/completions "
    "--random-mm-base-items-per-request 1 --random-mm-num-mm-items-range-ratio 0"
)
ONE_TILE = ["--random-mm-bucket-config", "{(336, 336, 1): 1.0}", "--random-mm-limit-mm-per-prompt", '{"image": 1}']


@pytest.mark.parametrize("dataset", [TEXTS.split(), [*PICTURES.split(), *ONE_TILE]], ids=["text", "pictures"])
def test_vllms_load_generator(tessera, tiny_checkpoint, tmp_path, dataset):
    command = [sys.executable, "-c", BENCH, "--base-url", tessera.url, "--model", tessera.model]
    command += ["--tokenizer", str(tiny_checkpoint), "--num-prompts", "6", "--random-input-len", "20"]
    command += ["--random-output-len", "4", *dataset, "--save-result", "--result-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    (result,) = tmp_path.glob("*.json")
    assert json.loads(result.read_text())["completed"] == 6
