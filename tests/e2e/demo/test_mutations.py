"""The golden questions see what they are meant to see: each kind of disorder makes at least five of the forty fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.answering import EndpointAnswerer
from demo.golden import load, wrong_answers
from tests.application import default_config, free_port, serve_run
from tests.e2e.demo.mutation.sitecustomize import MUTATIONS

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "data" / "golden"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def mutation(tmp_path_factory):
    """Names the disorder of `mutable_application`."""
    file = tmp_path_factory.mktemp("mutation") / "name"
    file.write_text("")
    return file


@pytest.fixture(scope="module")
def mutable_application(mutation, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUTATION", str(mutation))
        patch.setenv("PYTHONPATH", str(Path(__file__).parent / "mutation"))
        config = default_config(ROOT / "demo" / "checkpoint", free_port())
        with serve_run(config, "local", tmp_path_factory.mktemp("mutable")) as running:
            yield running


def failures(url: str) -> int:
    answerer = EndpointAnswerer(f"{url}/v1")
    return sum(len(wrong_answers(turns, answerer)) for _, turns in load(GOLDEN))


def test_order_is_right(mutable_application, mutation):
    mutation.write_text("")
    assert failures(mutable_application.url) <= 1


@pytest.mark.parametrize("name", MUTATIONS)
def test_disorder_shows(mutable_application, mutation, name):
    mutation.write_text(name)
    assert failures(mutable_application.url) >= 5
