"""Errors of the decoder pool, and the OpenAI error body in which they leave it."""

from __future__ import annotations

import json

from llm_pool.reply import Endpoint


class RefusedError(Exception):
    """Ends a request before the engine sees it; `message` is written for the client and holds none of its data."""

    status = 500
    type = "InternalServerError"
    code: str | None = None

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def body(self) -> str:
        return error_body(self.status, self.message, self.type, code=self.code)


class EmbeddingError(RefusedError):
    """The embeddings of a request are not what its images need: shape, dtype, tiles, or a value that is no number.

    The fault of our own encoder or Router: vLLM itself would go down with a misshapen embedding.
    """

    code = "bad_embeddings"


class EncoderMismatchError(RefusedError):
    """The embeddings were made with other vision weights than this decoder's checkpoint holds."""

    status = 503
    type = "ServiceUnavailableError"
    code = "encoder_mismatch"


class EmbeddingLostError(RefusedError):
    """An embedding did not arrive: its encoder failed, or the node on which it lay is gone."""

    status = 503
    type = "ServiceUnavailableError"
    code = "embedding_lost"


def error_body(status: int, message: str, kind: str, *, param: str | None = None, code: str | None = None) -> str:
    """JSON text {"error": {"message", "type", "param", "code"}}; `code` is the status where there is no word for it."""
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code or status}})


def error_event(body: str, endpoint: Endpoint) -> str:
    """The server-sent event that ends a stream with an error; body: as error_body gives it.

    The events of /v1/responses carry a type, and an error's fields beside it.
    """
    if endpoint != "responses":
        return f"data: {body}\n\n"
    return f"event: error\ndata: {json.dumps(json.loads(body)['error'] | {'type': 'error'})}\n\n"
