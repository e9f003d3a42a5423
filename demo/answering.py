"""Two ways to have a question answered: by an OpenAI endpoint, and by transformers in this process."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any, Protocol

import torch
from openai import OpenAI
from PIL import Image
from transformers import AutoProcessor, Llama4ForConditionalGeneration

MAX_ANSWER_TOKENS = 24

# A message of the chat format, its pictures as {"type": "image", "image": PIL image}.
Message = dict[str, Any]


class Answerer(Protocol):
    def answer(self, conversation: list[Message]) -> str:
        """The likeliest next message of the assistant, stripped."""
        ...


class EndpointAnswerer:
    """Asks an OpenAI endpoint; pictures are sent as PNG data URLs."""

    def __init__(self, base_url: str, model: str | None = None, api_key: str = "none") -> None:
        self._client = OpenAI(base_url=base_url, api_key=api_key)
        self._model = model or self._client.models.list().data[0].id

    def answer(self, conversation: list[Message]) -> str:
        completion = self._client.chat.completions.create(
            model=self._model,
            messages=[{**message, "content": _for_endpoint(message["content"])} for message in conversation],
            temperature=0,
            max_tokens=MAX_ANSWER_TOKENS,
        )
        return (completion.choices[0].message.content or "").strip()


class TransformersAnswerer:
    """Runs a checkpoint in float32 on the CPU, or in bfloat16 on a GPU."""

    def __init__(self, checkpoint: Path) -> None:
        self._device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
        self._processor = AutoProcessor.from_pretrained(checkpoint)
        model = Llama4ForConditionalGeneration.from_pretrained(checkpoint, dtype=dtype)
        self._model = model.to(self._device).eval()

    @torch.inference_mode()
    def answer(self, conversation: list[Message]) -> str:
        inputs = self._processor.apply_chat_template(
            conversation, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        ).to(self._device, dtype=self._model.dtype)
        output = self._model.generate(**inputs, max_new_tokens=MAX_ANSWER_TOKENS, do_sample=False)
        answer = output[0, inputs["input_ids"].shape[1] :]
        return self._processor.decode(answer, skip_special_tokens=True).strip()


def data_url(image: Image.Image) -> str:
    """The picture as a PNG in a data: URL."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _for_endpoint(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    return [
        {"type": "image_url", "image_url": {"url": data_url(part["image"])}} if part["type"] == "image" else part
        for part in content
    ]
