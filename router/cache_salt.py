"""Tenants kept apart in vLLM's prefix cache, which shares what begins alike and has the same `cache_salt`."""

from __future__ import annotations

from typing import Any


def with_tenants_salt(body: dict[str, Any], tenant: str) -> dict[str, Any]:
    """`body` with a `cache_salt` that no other tenant can have; a salt of the client's own divides further.

    tenant: without a colon; "" where all clients are one tenant.
    """
    return {**body, "cache_salt": f"{tenant}:{body.get('cache_salt') or ''}"} if tenant else body
