"""The OpenAPI document: vLLM's request models as the bodies of the endpoints that pass requests on to it."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from llm_pool.protocol import REQUEST_TYPES
from llm_pool.reply import Endpoint

PATHS: dict[Endpoint, str] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "tokenize": "/tokenize",
    "detokenize": "/detokenize",
}
STREAMED = ("chat", "completions", "responses")
_TEMPLATE = "#/components/schemas/{model}"
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "The part of the request that is at fault."},
                "code": {"type": ["string", "integer"], "description": "A word for the case, else the status."},
            },
        }
    },
}


def document(api: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of `api`."""
    found = get_openapi(title=api.title, version=api.version, summary=api.summary, routes=api.routes)
    adapters: list[tuple[Endpoint, Literal["validation"], TypeAdapter[Any]]] = [
        (endpoint, "validation", TypeAdapter(kind)) for endpoint, kind in REQUEST_TYPES.items()
    ]
    schemas, definitions = TypeAdapter.json_schemas(adapters, ref_template=_TEMPLATE)
    found["components"] = {"schemas": {"Error": _ERROR, **definitions.get("$defs", {})}}
    for operations in found["paths"].values():
        for operation in operations.values():
            operation["responses"]["default"] = _content("What went wrong.", {"$ref": "#/components/schemas/Error"})
            operation["responses"].pop("422", None)
    for endpoint, path in PATHS.items():
        operation = found["paths"][path]["post"]
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[endpoint, "validation"]}},
        }
        if endpoint in STREAMED:
            operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return found


def _content(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
