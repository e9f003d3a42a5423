"""Golden questions over HTTP: a tile, a picture or a separator in the wrong place would show in an answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from demo.answering import EndpointAnswerer
from demo.golden import load, wrong_answers
from tests.application import default_config, free_port, serve_run

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "data" / "golden"


@pytest.fixture(scope="module")
def demo_application(tmp_path_factory):
    """The embedded default as it is served, with the trained model."""
    config = default_config(ROOT / "demo" / "checkpoint", free_port())
    with serve_run(config, "local", tmp_path_factory.mktemp("demo")) as running:
        yield running


def test_answers_are_right(demo_application):
    answerer = EndpointAnswerer(f"{demo_application.url}/v1")
    conversations = [turns for _, turns in load(GOLDEN)]
    with ThreadPoolExecutor(8) as together:
        found = together.map(lambda turns: wrong_answers(turns, answerer), conversations)
        wrong = [line for lines in found for line in lines]
    # They were chosen by transformers' rounding; vLLM's turns a borderline one. A misplaced tile turns five or more.
    assert len(wrong) <= 1, wrong
