"""Chat requests of several kinds from clients that each send one after the other, to any OpenAI endpoint."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from PIL import Image, ImageDraw

IMAGE_SIZE = (672, 672)
_KIND = re.compile(r"text|image(-(?P<wide>\d+)x(?P<high>\d+))?")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request. started: seconds since the traffic began; seconds: of the whole; ttft: until the first token.

    error: None where the answer is complete; else the status and code, or what broke the connection.
    """

    kind: str
    started: float
    seconds: float
    ttft: float | None
    error: str | None


def parse_mix(text: str) -> dict[str, float]:
    """ "text:0.5,image:0.5" as shares that add up to 1. Raises ValueError."""
    mix = {}
    for item in text.split(","):
        kind, _, share = item.partition(":")
        if not _KIND.fullmatch(kind):
            raise ValueError(f"{kind!r}: kinds are text, image and image-WIDTHxHEIGHT")
        mix[kind] = float(share or 1)
    total = sum(mix.values())
    return {kind: share / total for kind, share in mix.items()}


def parse_size(text: str) -> tuple[int, int]:
    """ "1920x1080" as width and height. Raises ValueError."""
    wide, high = text.split("x")
    return int(wide), int(high)


def picture(rng: random.Random, size: tuple[int, int]) -> bytes:
    """A JPEG of random boxes, which no cache has seen before."""
    image = Image.new("RGB", size, tuple(rng.randbytes(3)))
    draw = ImageDraw.Draw(image)
    for _ in range(20):
        x, y = rng.randrange(size[0]), rng.randrange(size[1])
        draw.rectangle([x, y, x + size[0] // 5, y + size[1] // 5], fill=tuple(rng.randbytes(3)))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    return file.getvalue()


def chat_body(kind: str, model: str, max_tokens: int, rng: random.Random) -> dict[str, Any]:
    """A streamed chat request of that kind, with words and a picture of its own."""
    content: list[dict[str, Any]] = [{"type": "text", "text": f"Question {rng.randrange(10**9)}: what is here?"}]
    found = _KIND.fullmatch(kind)
    if kind != "text" and found:
        size = (int(found["wide"]), int(found["high"])) if found["wide"] else IMAGE_SIZE
        url = "data:image/jpeg;base64," + base64.b64encode(picture(rng, size)).decode()
        content.insert(0, {"type": "image_url", "image_url": {"url": url}})
    messages = [{"role": "user", "content": content}]
    return {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0, "stream": True}


class Traffic:
    """url: of the server, e.g. http://127.0.0.1:8000; mix: kind -> share of the requests; seed: of anything random."""

    def __init__(
        self,
        url: str,
        model: str,
        mix: Mapping[str, float],
        *,
        max_tokens: int = 16,
        api_key: str = "none",
        seed: int = 0,
    ) -> None:
        self._url = f"{url.rstrip('/')}/v1/chat/completions"
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._model = model
        self._mix = mix
        self._max_tokens = max_tokens
        self._rng = random.Random(seed)

    async def run(self, clients: int, seconds: float) -> list[Outcome]:
        """The outcomes of all requests that were begun within `seconds`; the last ones are waited for."""
        outcomes: list[Outcome] = []
        began = time.perf_counter()
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=300)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self._headers) as session:

            async def client(rng: random.Random) -> None:
                while time.perf_counter() - began < seconds:
                    kind = rng.choices(list(self._mix), list(self._mix.values()))[0]
                    body = await asyncio.to_thread(chat_body, kind, self._model, self._max_tokens, rng)
                    outcomes.append(await self._send(session, kind, body, began))

            await asyncio.gather(*(client(random.Random(self._rng.random())) for _ in range(clients)))
        return outcomes

    async def _send(self, session: aiohttp.ClientSession, kind: str, body: dict[str, Any], began: float) -> Outcome:
        started = time.perf_counter()
        ttft: float | None = None
        error: str | None = "the stream ended without [DONE]"
        try:
            async with session.post(self._url, json=body) as response:
                if response.status != 200:
                    error = f"{response.status} {_code(await response.text())}"
                else:
                    async for line in response.content:
                        if not line.startswith(b"data: "):
                            continue  # the end of an event, or a comment that keeps the stream open
                        event = line.decode().removeprefix("data: ").strip()
                        if ttft is None:
                            ttft = time.perf_counter() - started
                        if event.startswith('{"error"'):
                            error = f"stream {_code(event)}"
                            break
                        if event == "[DONE]":
                            error = None
        except (aiohttp.ClientError, TimeoutError) as failure:
            error = type(failure).__name__
        return Outcome(kind, started - began, time.perf_counter() - started, ttft, error)


def _code(body: str) -> str:
    try:
        return str(json.loads(body)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return "(not OpenAI's shape)"
