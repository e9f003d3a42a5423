"""When a Router is ready: once one picture went the whole way through both pools."""

from __future__ import annotations

import asyncio
import base64
import io
import logging

from PIL import Image

from router.errors import ApiError
from router.pipeline import Pipeline

logger = logging.getLogger("ray.serve")

LOOK_S = 0.5
REPEAT_S = 30.0


class Readiness:
    """Sends the warm-up picture as soon as both pools have a replica; says until then what is missing."""

    def __init__(self, pipeline: Pipeline, model_name: str) -> None:
        self._pipeline = pipeline
        self._body = _picture_request(model_name)
        self._waiting_for: str | None = "the pools' replicas"
        self._task = asyncio.get_running_loop().create_task(self._warm_up())

    @property
    def waiting_for(self) -> str | None:
        """What the application still waits for; None when it is ready."""
        if self._waiting_for is None and "LLMPool" in self._pipeline.missing():
            return "a living replica of LLMPool"
        return self._waiting_for

    async def _warm_up(self) -> None:
        loop = asyncio.get_running_loop()
        said, said_at = None, 0.0
        while self._waiting_for is not None:
            missing = self._pipeline.missing()
            if missing:
                self._waiting_for = f"replicas of {' and '.join(missing)}, which are loading"
            else:
                self._waiting_for = await self._send_picture()
            if self._waiting_for is None:
                logger.info("ready: a picture went through both pools")
                return
            if self._waiting_for != said or loop.time() - said_at > REPEAT_S:
                said, said_at = self._waiting_for, loop.time()
                logger.info("starting: waiting for %s", said)
            await asyncio.sleep(LOOK_S)

    async def _send_picture(self) -> str | None:
        try:
            answer = await self._pipeline.answer("chat", self._body, "warm-up")
        except ApiError as error:
            return f"the first picture's answer ({error.message})"
        except Exception as error:
            logger.exception("the warm-up picture failed")
            return f"the first picture's answer ({type(error).__name__})"
        if answer.head.status != 200:
            return f"the first picture's answer (status {answer.head.status}: {answer.head.body})"
        return None


def _picture_request(model_name: str) -> dict[str, object]:
    picture = io.BytesIO()
    Image.new("RGB", (336, 336), "gray").save(picture, "PNG")
    url = "data:image/png;base64," + base64.b64encode(picture.getvalue()).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "?"}]
    return {"model": model_name, "messages": [{"role": "user", "content": content}], "max_tokens": 1}
