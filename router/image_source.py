"""Image parts to bytes: `data:` URLs, and http(s) URLs through a client that never reaches inside.

Every address that is dialled, of a redirect's host too, passes `_PublicAddresses` after the name was resolved, so a
name that resolves to an inside address, or does so only the second time, gets nowhere. Whoever asks sees the same
words for "refused" and "nothing there".
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import socket
from collections.abc import Sequence
from types import TracebackType
from urllib.parse import urlsplit

import aiohttp

from router.errors import ApiError, bad_request

MAX_REDIRECTS = 5
_UNREACHABLE = "the picture's host could not be reached"


class ImageSource:
    """Fetches the bytes of image parts; one for the life of a Router (it keeps connections)."""

    def __init__(self, *, max_bytes: int, timeout_s: float, private_networks: Sequence[str] = ()) -> None:
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._addresses = _PublicAddresses(private_networks)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> ImageSource:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def read(self, url: str, path: str) -> bytes:
        """The encoded picture behind `url`; `path` names its part in errors.

        Raises ApiError 400: a scheme other than http, https and data, a malformed data URL, a host that cannot be
        reached or must not be, an answer other than 200 (`image_fetch_failed`), a time-out (`image_fetch_timeout`),
        too many bytes (`image_too_large`).
        """
        scheme = url.partition(":")[0].lower()
        if scheme == "data":
            return self._read_data(url, path)
        if scheme in ("http", "https"):
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self._fetch(url, path)
            except TimeoutError:
                raise bad_request(
                    f"{path}: the picture did not arrive within {self._timeout_s:g} s",
                    path,
                    "image_fetch_timeout",
                ) from None
        raise bad_request(f"{path}: image URLs must begin with http:, https: or data:", path)

    def _read_data(self, url: str, path: str) -> bytes:
        head, comma, payload = url.partition(",")
        if not comma:
            raise bad_request(f"{path}: the data URL has no comma between its type and its data", path)
        if not head.lower().endswith(";base64"):
            raise bad_request(f"{path}: the data URL must be base64 (data:image/png;base64,...)", path)
        # Four characters are three bytes, less one or two for the padding.
        if len(payload) // 4 * 3 - payload[-2:].count("=") > self._max_bytes:
            raise self._too_large(path)
        try:
            data = base64.b64decode(payload, validate=True)
        except (binascii.Error, ValueError):
            raise bad_request(f"{path}: the data URL's base64 is malformed", path) from None
        if not data:
            raise bad_request(f"{path}: the data URL is empty", path)
        return data

    async def _fetch(self, url: str, path: str) -> bytes:
        try:
            parts = urlsplit(url)
            malformed = not parts.hostname or parts.username is not None or parts.port == 0
        except ValueError:
            malformed = True
        if malformed:
            raise bad_request(f"{path}: malformed URL, or one with credentials in it", path)
        try:
            async with self._client().get(url, max_redirects=MAX_REDIRECTS) as response:
                if response.status != 200:
                    raise bad_request(
                        f"{path}: the picture's host answered {response.status}", path, "image_fetch_failed"
                    )
                return await self._body(response, path)
        except aiohttp.TooManyRedirects:
            message = f"{path}: more than {MAX_REDIRECTS} redirects"
            raise bad_request(message, path, "image_fetch_failed") from None
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL, OSError):
            raise bad_request(f"{path}: {_UNREACHABLE}", path, "image_fetch_failed") from None
        except (aiohttp.ClientError, ValueError):
            raise bad_request(f"{path}: the picture's host broke off its answer", path, "image_fetch_failed") from None

    async def _body(self, response: aiohttp.ClientResponse, path: str) -> bytes:
        data = bytearray()
        async for chunk in response.content.iter_chunked(1 << 16):
            data += chunk
            if len(data) > self._max_bytes:
                raise self._too_large(path)
        if not data:
            raise bad_request(f"{path}: the picture's host sent nothing", path, "image_fetch_failed")
        return bytes(data)

    def _client(self) -> aiohttp.ClientSession:
        # Made at the first fetch: aiohttp wants the running loop.
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=64, socket_factory=self._addresses.socket)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None),  # `read` holds the deadline
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "tessera", "Accept": "image/*"},
            )
        return self._session

    def _too_large(self, path: str) -> ApiError:
        return bad_request(f"{path}: the picture has more than {self._max_bytes} bytes", path, "image_too_large")


class _PublicAddresses:
    """A socket factory for aiohttp that refuses addresses which are not public."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = [ipaddress.ip_network(network) for network in allowed]

    def socket(self, address: tuple[int, int, int, str, tuple[str | int, ...]]) -> socket.socket:
        """A socket for one resolved address, as `socket.getaddrinfo` gives it. OSError where it is not public."""
        family, kind, protocol, _, target = address
        if not self.permits(str(target[0])):
            raise OSError("not a public address")
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        return made

    def permits(self, host: str) -> bool:
        """Whether the numeric address `host` may be dialled."""
        ip = ipaddress.ip_address(host.partition("%")[0])
        if isinstance(ip, ipaddress.IPv6Address):
            # A v4 address in v6 clothes is judged as v4.
            ip = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None) or _nat64(ip) or ip
        if any(ip.version == network.version and ip in network for network in self._allowed):
            return True
        return ip.is_global and not ip.is_multicast


def _nat64(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The v4 address in 64:ff9b::/96 (RFC 6052)."""
    if ip in ipaddress.IPv6Network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return None
