"""Image parts to bytes, from wherever their URL leads: the URL itself (`data:`), a web host, or a file."""

from __future__ import annotations

import asyncio
import base64
import binascii
from types import TracebackType

from router.config import RouterSettings
from router.errors import ApiError, bad_request
from router.image_fetch import FetchError, ImageFetcher
from router.local_pictures import LocalPictures


class ImageSource:
    """One for the life of a Router."""

    def __init__(self, settings: RouterSettings) -> None:
        self._max_bytes = settings.max_image_bytes
        self._fetcher = ImageFetcher(
            max_bytes=settings.max_image_bytes,
            timeout_s=settings.fetch_timeout_s,
            private_networks=settings.fetch_private_networks,
            allowed_hosts=settings.fetch_allowed_hosts,
        )
        self._files = LocalPictures(settings.allowed_local_media_path, settings.max_image_bytes)

    async def __aenter__(self) -> ImageSource:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._fetcher.close()

    async def read(self, url: str, path: str, tenant: str = "") -> bytes:
        """The encoded picture behind `url`; `path` names its part in errors.

        Raises ApiError 400: a scheme that is not accepted, a malformed data URL, a host or file that cannot be reached
        or must not be (`image_fetch_failed`), a time-out (`image_fetch_timeout`), too many bytes (`image_too_large`).
        """
        scheme = url.partition(":")[0].lower()
        if scheme == "data":
            return self._read_data(url, path)
        if scheme in ("http", "https"):
            try:
                return await self._fetcher.fetch(url, tenant)
            except FetchError as error:
                raise bad_request(f"{path}: {error.message}", path, error.code) from None
        if scheme == "file" and self._files.enabled:
            data = await asyncio.to_thread(self._files.read, url)
            if not data:
                raise bad_request(f"{path}: the file could not be read", path, "image_fetch_failed")
            if len(data) > self._max_bytes:
                raise self._too_large(path)
            return data
        accepted = "http:, https:, file: or data:" if self._files.enabled else "http:, https: or data:"
        raise bad_request(f"{path}: image URLs must begin with {accepted}", path)

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

    def _too_large(self, path: str) -> ApiError:
        return bad_request(f"{path}: the picture has more than {self._max_bytes} bytes", path, "image_too_large")
