"""Headers about safety on every answer, and CORS where the operator names origins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.datastructures import MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Answers are data for programs: no browser should guess a type, render, frame or keep them.
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class SecurityHeaders:
    """ASGI middleware that adds SECURITY_HEADERS."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)


class Cors:
    """ASGI middleware that lets pages of `origins()` read answers; asked at the first request, [] changes nothing."""

    def __init__(self, app: ASGIApp, origins: Callable[[], Sequence[str]]) -> None:
        self._app = app
        self._origins = origins
        self._inner: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._inner is None:
            self._inner = self._with_cors(self._origins())
        await self._inner(scope, receive, send)

    def _with_cors(self, origins: Sequence[str]) -> ASGIApp:
        if not origins:
            return self._app
        return CORSMiddleware(
            self._app,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            # OpenAI's client in a browser sends a dozen of its own.
            allow_headers=["*"],
            expose_headers=["x-request-id", "retry-after"],
        )
