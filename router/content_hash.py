"""The name of an image in every cache: a hash of its bytes and of all that changes its embedding.

Derived here and nowhere else; a name that a client sends with an image is ignored, since it would key caches that
other clients share.
"""

from __future__ import annotations

from blake3 import blake3

from encoder_pool.wire import EmbeddingDtype


def content_hash(
    data: bytes,
    *,
    tenant: str,
    fingerprint: str,
    dtype: EmbeddingDtype,
    quantization: str | None,
    max_tiles: int,
) -> str:
    """Hex, 64 characters.

    tenant: whose picture it is; tenants share no cache. fingerprint: of the vision weights. dtype, quantization: what
    the encoder computes in. max_tiles: of the canvas.
    """
    digest = blake3(f"{tenant}\0{fingerprint}\0{dtype}\0{quantization}\0{max_tiles}\0".encode())
    return digest.update(data).hexdigest()
