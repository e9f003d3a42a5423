"""Whatever the OpenAPI document allows, and half-valid requests: none is answered 5xx."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from tests.e2e.router.differential_requests import Case, requests

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

EXAMPLES = 5000
PROMPTS = ("messages", "input", "prompt", "tokens")
SHORT = {"max_tokens": 2, "max_output_tokens": 2}


class Tally:
    """Answers by status, and the good ones to requests with a picture."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.pictures = 0


def half_valid(body: dict[str, Any], valid: Case) -> dict[str, Any]:
    """A valid request with one option of a generated body."""
    options = [(key, value) for key, value in body.items() if key not in PROMPTS]
    return valid.body | dict(random.Random(len(options)).sample(options, min(1, len(options))))


def send(operation: Any, valid: list[Case], count: int, tally: Tally) -> None:
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(), pick=st.integers(0, 2**20))
    def example(case: Any, pick: int) -> None:
        chosen = valid[pick % len(valid)] if valid and pick % 2 else None
        if isinstance(case.body, dict):
            case.body = (half_valid(case.body, chosen) if chosen else case.body) | SHORT
        answer = case.call(timeout=120)
        tally.statuses[answer.status_code] += 1
        tally.pictures += answer.status_code == 200 and chosen is not None and chosen.pictures > 0
        assert answer.status_code < 500, (case.path, answer.text)
        if answer.status_code != 200:
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}

    example()


def test_no_request_is_answered_5xx(tessera):
    schema = schemathesis.openapi.from_url(f"{tessera.url}/openapi.json")
    valid = [case for case in requests(tessera.model, seed=1) if not case.spoilt]
    operations = [result.ok() for result in schema.get_all_operations()]
    posts = [operation for operation in operations if operation.method.upper() == "POST"]
    tally = Tally()
    for operation in operations:
        count = -(-EXAMPLES // len(posts)) if operation in posts else 1
        send(operation, [case for case in valid if case.path == operation.path], count, tally)
    assert tally.statuses.total() >= EXAMPLES
    assert tally.statuses[200] >= EXAMPLES // 5
    assert tally.pictures >= 200
