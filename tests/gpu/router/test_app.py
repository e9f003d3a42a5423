"""The whole application on one GPU, from the configuration that users get."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from openai import OpenAI
from PIL import Image

from demo.answering import data_url
from tests.application import ROOT, Tessera, free_port, serve_run


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tessera]:
    pytest.importorskip("vllm")
    config = yaml.safe_load((ROOT / "configs" / "demo-one-gpu.yaml").read_text())
    config["http_options"]["port"] = free_port()
    with serve_run(config, "local", tmp_path_factory.mktemp("application")) as running:
        yield running


@pytest.mark.parametrize("stream", [False, True])
def test_the_demo_model_reads_a_number(application: Tessera, stream: bool) -> None:
    with Image.open(Path(ROOT, "demo", "pictures", "example.png")) as picture:
        url = data_url(picture.convert("RGB"))
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What do you see?"}]
    answer = OpenAI(base_url=f"{application.url}/v1", api_key="none").chat.completions.create(
        model=application.model, messages=[{"role": "user", "content": content}], temperature=0, stream=stream
    )
    if stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)
    else:
        text = answer.choices[0].message.content
    assert "472" in text
