"""The OpenAI error body."""

import json

from llm_pool.errors import EmbeddingError, EncoderMismatchError, error_body


def test_the_code_is_a_word_or_the_status() -> None:
    assert json.loads(error_body(400, "m", "BadRequestError", param="p")) == {
        "error": {"message": "m", "type": "BadRequestError", "param": "p", "code": 400}
    }
    assert (
        json.loads(error_body(404, "m", "NotFoundError", code="model_not_found"))["error"]["code"] == "model_not_found"
    )


def test_refusals_know_their_status() -> None:
    assert (EmbeddingError("m").status, EncoderMismatchError("m").status) == (500, 503)
    assert json.loads(EncoderMismatchError("m").body())["error"] == {
        "message": "m",
        "type": "ServiceUnavailableError",
        "param": None,
        "code": "encoder_mismatch",
    }
