import json
import re

from router.openai_api import api
from router.openapi import PATHS, document


def test_every_endpoint_is_described_and_every_reference_leads_somewhere():
    described = document(api)
    assert {path for path in PATHS.values() if "post" in described["paths"][path]} == set(PATHS.values())
    assert {"/v1/models", "/health", "/version"} < described["paths"].keys()
    references = re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(described))
    assert set(references) <= described["components"]["schemas"].keys()


def test_bodies_are_vllms_and_errors_ours():
    described = document(api)
    chat = described["paths"]["/v1/chat/completions"]["post"]
    assert chat["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/ChatCompletionRequest")
    assert "text/event-stream" in chat["responses"]["200"]["content"]
    assert "422" not in chat["responses"]
    error = described["components"]["schemas"]["Error"]["properties"]["error"]
    assert error["required"] == ["message", "type", "param", "code"]
