"""API keys: read from files and environment variables, and compared with what a client sends."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from router.errors import ApiError
from router.live_settings import ApiKeySettings

logger = logging.getLogger("ray.serve")

# A key is sent to us as often as somebody likes to guess: 16 random letters and digits are 95 bits.
MIN_LENGTH = 16
# What `vllm serve` takes its key from.
VLLM_VARIABLE = "VLLM_API_KEY"


class ApiKeyError(ValueError):
    """A key cannot be used, or protection was meant and is not there; the message names the key's source."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request. tenant: whom caches are kept apart for; trusted: may send control tokens as text."""

    name: str
    tenant: str
    trusted: bool


# Where no keys are configured, everybody is one tenant.
ANYONE = Caller(name="", tenant="", trusted=False)


class ApiKeys:
    """The keys that are valid now; None until keys are configured, and everyone is served then."""

    def __init__(self) -> None:
        self._settings: Sequence[ApiKeySettings] | None = None
        # Digests, so that all comparisons take equally long whatever the keys' lengths are.
        self._digests: list[tuple[bytes, ApiKeySettings]] = []

    def configure(self, settings: Sequence[ApiKeySettings] | None) -> None:
        """Reads all keys and puts them in the place of those before; None serves everyone.

        Raises ApiKeyError where a first configuration has a key that cannot be used, or would leave the door open
        that somebody meant to close. Later on such a key is left out, with an error in the log, so that the others
        hold at once.
        """
        if settings is None and os.environ.get(VLLM_VARIABLE):
            raise ApiKeyError(
                f"{VLLM_VARIABLE} is set, but protects nothing here: name it as `env` of a key in the Router's "
                "user_config.api_keys, or unset it"
            )
        first = self._settings is None
        digests, errors = _read_all(settings or ())
        if errors and first:
            raise errors[0]
        self._settings, self._digests = settings, digests
        for error in errors:
            logger.error("API key left out: %s", error)
        if settings is None:
            logger.info("no API keys are configured: every client is served")
        else:
            logger.info("%d API keys are valid", len(digests))

    async def reread(self) -> None:
        """Takes up keys whose files have changed."""
        settings = self._settings
        digests, errors = await asyncio.to_thread(_read_all, settings or ())
        if settings is self._settings and digests != self._digests:
            self._digests = digests
            logger.info("API keys have changed: %d are valid", len(digests))
            for error in errors:
                logger.error("API key left out: %s", error)

    def find(self, authorization: str | None) -> ApiKeySettings | None:
        """The key in an `Authorization` header; None where no keys are configured. Raises ApiError 401."""
        if self._settings is None:
            return None
        scheme, _, sent = (authorization or "").partition(" ")
        digest = _digest(sent.strip())
        # Every key is compared, so that the time tells nothing.
        found = [settings for known, settings in self._digests if hmac.compare_digest(known, digest)]
        if scheme.lower() != "bearer" or not found:
            raise ApiError(
                401,
                "a valid API key is needed: send `Authorization: Bearer KEY`",
                code="invalid_api_key",
            )
        return found[0]


def _read_all(settings: Sequence[ApiKeySettings]) -> tuple[list[tuple[bytes, ApiKeySettings]], list[ApiKeyError]]:
    """Digest and settings of each key, and what is wrong with those that cannot be used."""
    found: dict[bytes, ApiKeySettings] = {}
    errors = []
    for one in settings:
        try:
            digest = _digest(_read(one))
            if digest in found:
                raise ApiKeyError(f"{one.name}: the same key as {found[digest].name}")
            found[digest] = one
        except ApiKeyError as error:
            errors.append(error)
    return list(found.items()), errors


def _read(settings: ApiKeySettings) -> str:
    if settings.env is not None:
        source, text = f"environment variable {settings.env}", os.environ.get(settings.env, "")
    else:
        source = f"file {settings.file}"
        try:
            text = Path(str(settings.file)).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ApiKeyError(f"{settings.name}: {source}: {type(error).__name__}") from None
    key = text.strip()
    if not key:
        raise ApiKeyError(f"{settings.name}: {source}: empty or absent")
    if len(key) < MIN_LENGTH:
        raise ApiKeyError(f"{settings.name}: {source}: a key has at least {MIN_LENGTH} characters")
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise ApiKeyError(f"{settings.name}: {source}: one key of printable ASCII without spaces, and nothing else")
    return key


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
