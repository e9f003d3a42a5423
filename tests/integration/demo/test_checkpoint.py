"""The trained checkpoint in the repository: small enough, built from the code beside it, and it reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from demo.answering import TransformersAnswerer
from demo.architecture import build_config, build_processor
from demo.tokenizer import build_tokenizer
from demo.train import DEMO

ROOT = Path(__file__).parents[3]
CHECKPOINT = ROOT / "demo" / "checkpoint"


def test_it_is_small():
    assert sum(path.stat().st_size for path in CHECKPOINT.glob("*.safetensors")) < 12_000_000


def test_its_files_are_those_of_the_code():
    tokenizer = build_tokenizer()
    config = json.loads((CHECKPOINT / "config.json").read_text())
    expected = json.loads(build_config(DEMO, tokenizer, "bfloat16").to_json_string())
    for part in ("text_config", "vision_config"):
        for written in (config, expected):
            written[part].pop("initializer_range")
        assert {key: config[part][key] for key in expected[part] if key in config[part]} == {
            key: value for key, value in expected[part].items() if key in config[part]
        }
    assert json.loads((CHECKPOINT / "tokenizer.json").read_text()) == json.loads(tokenizer.backend_tokenizer.to_str())
    assert (CHECKPOINT / "chat_template.jinja").read_text() == build_processor(tokenizer).chat_template


@pytest.mark.parametrize(("question", "answer"), [("What do you see?", "a blue 472"), ("What number is this?", "472")])
def test_it_reads_the_picture_of_the_readme(question, answer):
    image = Image.open(ROOT / "demo" / "pictures" / "example.png")
    content = [{"type": "image", "image": image}, {"type": "text", "text": question}]
    assert TransformersAnswerer(CHECKPOINT).answer([{"role": "user", "content": content}]) == answer
