"""Who may come in: every path but /health asks for a valid API key, where keys are configured, and counts it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from fastapi import Request, Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from router.api_keys import ANYONE, ApiKeys, Caller
from router.errors import ApiError
from router.key_limits import KeyLimits
from router.live_settings import ApiKeySettings

# Load balancers and Kubernetes ask it, and it tells nothing but whether the application is ready.
OPEN_PATH = "/health"
REREAD_S = 10.0


class Access:
    """The keys of one Router and what they have used; belongs to one event loop."""

    def __init__(self) -> None:
        self._keys = ApiKeys()
        self._limits = KeyLimits()
        self._watch = asyncio.get_running_loop().create_task(self._reread())

    def configure(self, settings: Sequence[ApiKeySettings] | None) -> None:
        """Puts these keys in the place of those before. Raises ApiKeyError (see ApiKeys.configure)."""
        self._keys.configure(settings)

    @contextmanager
    def admit(self, authorization: str | None) -> Iterator[Caller]:
        """Who sends a request with that `Authorization` header. Raises ApiError 401 or 429."""
        key = self._keys.find(authorization)
        if key is None:
            yield ANYONE
            return
        with self._limits.admit(key):
            yield Caller(key.name, key.tenant or key.name, key.trusted)

    async def _reread(self) -> None:
        while True:
            await asyncio.sleep(REREAD_S)
            await self._keys.reread()


class AccessControl:
    """ASGI middleware; `access` is asked for at each request, since the application is older than the replica."""

    def __init__(self, app: ASGIApp, access: Callable[[], Access]) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == OPEN_PATH:
            await self._app(scope, receive, send)
            return
        with ExitStack() as stack:
            try:
                caller = stack.enter_context(self._access().admit(Headers(scope=scope).get("authorization")))
            except ApiError as error:
                await Response(error.body(), error.status, error.headers(), "application/json")(scope, receive, send)
                return
            scope.setdefault("state", {})["caller"] = caller
            await self._app(scope, receive, send)


def caller_of(request: Request) -> Caller:
    """Who sent a request that came through AccessControl."""
    caller: Caller = request.state.caller
    return caller
