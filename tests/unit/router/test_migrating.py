"""The page for those who come from vLLM, held against what is refused."""

import pytest

from llm_pool.engine_args import OWNED_ENGINE_KWARGS, OWNED_FRONTEND_KWARGS
from tests.application import ROOT

PAGE = (ROOT / "configs" / "MIGRATING.md").read_text()


@pytest.mark.parametrize("option", sorted(OWNED_ENGINE_KWARGS | OWNED_FRONTEND_KWARGS))
def test_every_option_that_is_refused_is_listed(option):
    assert f"`{option}`" in PAGE
