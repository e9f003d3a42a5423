"""Pictures by http(s) URL, through a client that never reaches inside.

Redirects are followed by hand, and each URL on the way is checked like the first: its form, the operator's list of
hosts, and at the moment of dialling its address. Whoever asks sees the same words for "refused" and "nothing there".
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from router.public_addresses import PublicAddresses
from router.shared_tasks import SharedTasks

MAX_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)
DEFAULT_PORTS = {"http": 80, "https": 443}
# A name server that does not answer holds a thread for many seconds, which nobody else should wait for.
RESOLVER_THREADS = 256


class FetchError(Exception):
    """A picture could not be fetched; code: of the ApiError that it becomes, None where the URL itself is at fault."""

    def __init__(self, message: str, code: str | None = "image_fetch_failed") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def unreachable() -> FetchError:
    return FetchError("the picture's host could not be reached")


class ImageFetcher:
    """One for the life of a Router (it keeps connections); belongs to one event loop.

    max_bytes: of one picture. timeout_s: for one picture, redirects included. private_networks: see PublicAddresses.
    allowed_hosts: if any, the only hosts that are contacted: "host" means ports 80 and 443, "host:port" that port,
    "*.host" all names below it.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        timeout_s: float,
        private_networks: Sequence[str] = (),
        allowed_hosts: Sequence[str] = (),
    ) -> None:
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._addresses = PublicAddresses(private_networks)
        self._allowed_hosts = [_host_and_port(entry) for entry in allowed_hosts]
        self._session: aiohttp.ClientSession | None = None
        self._fetches: SharedTasks[tuple[str, str], bytes] = SharedTasks()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def fetch(self, url: str, tenant: str) -> bytes:
        """The bytes behind `url`; requests of one tenant that want the same URL at the same time share a fetch.

        Raises FetchError: `image_fetch_failed`, `image_fetch_timeout`, `image_too_large`.
        """
        return await self._fetches.join((tenant, url), lambda: self._within_time(url))

    async def _within_time(self, url: str) -> bytes:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._follow(url)
        except TimeoutError:
            message = f"the picture did not arrive within {self._timeout_s:g} s"
            raise FetchError(message, "image_fetch_timeout") from None
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL, OSError):
            raise unreachable() from None
        except (aiohttp.ClientError, ValueError):
            raise FetchError("the picture's host broke off its answer") from None

    async def _follow(self, url: str) -> bytes:
        for _ in range(MAX_REDIRECTS + 1):
            self._check(url)
            async with self._client().get(url, allow_redirects=False) as response:
                if response.status not in REDIRECTS:
                    return await self._body(response)
                url = urljoin(url, response.headers.get("Location", ""))
        raise FetchError(f"more than {MAX_REDIRECTS} redirects")

    def _check(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or port == 0 or parts.username is not None or parts.scheme not in DEFAULT_PORTS:
            raise FetchError("malformed URL, or one with credentials in it", None)
        port = port or DEFAULT_PORTS[parts.scheme]
        if self._allowed_hosts and not any(_matches(host, port, *entry) for entry in self._allowed_hosts):
            raise unreachable()

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        if response.status != 200:
            raise FetchError(f"the picture's host answered {response.status}")
        data = bytearray()
        if (response.content_length or 0) > self._max_bytes:
            raise self._too_large()
        async for chunk in response.content.iter_chunked(1 << 16):
            data += chunk
            if len(data) > self._max_bytes:
                raise self._too_large()
        if not data:
            raise FetchError("the picture's host sent nothing")
        return bytes(data)

    def _too_large(self) -> FetchError:
        return FetchError(f"the picture has more than {self._max_bytes} bytes", "image_too_large")

    def _client(self) -> aiohttp.ClientSession:
        # Made at the first fetch: aiohttp wants the running loop.
        if self._session is None:
            connector = aiohttp.TCPConnector(
                # No limit on connections, or slow hosts would make others wait; the Router limits requests.
                limit=0,
                resolver=_Resolver(),
                socket_factory=self._addresses.socket,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None),  # `_within_time` holds the deadline
                cookie_jar=aiohttp.DummyCookieJar(),
                # Few bytes may unpack to many.
                auto_decompress=False,
                headers={"User-Agent": "tessera", "Accept": "image/*", "Accept-Encoding": "identity"},
            )
        return self._session


class _Resolver(AbstractResolver):
    """The system's resolver in threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="resolve")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._threads,
            lambda: socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG),
        )
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _host_and_port(entry: str) -> tuple[str, int | None]:
    parts = urlsplit(f"//{entry}")
    return parts.hostname or "", parts.port


def _matches(host: str, port: int, allowed: str, allowed_port: int | None) -> bool:
    if port != allowed_port and (allowed_port is not None or port not in DEFAULT_PORTS.values()):
        return False
    host = host.rstrip(".")
    return host.endswith(allowed[1:]) if allowed.startswith("*.") else host == allowed
