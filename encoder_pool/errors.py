"""Errors of the encoder pool that its callers tell apart."""

from __future__ import annotations


class CheckpointError(ValueError):
    """The checkpoint cannot be used: a file, a tensor or a configuration key is missing or unfit."""


class QueueFullError(RuntimeError):
    """A replica already holds as many waiting tiles as it may; the caller answers 429 and the client retries."""


class NonFiniteEmbeddingsError(RuntimeError):
    """The encoder computed NaN or infinity: a fault of the weights or of the machine, not of the request."""


class UnsupportedDeviceError(RuntimeError):
    """The device cannot do what the settings ask for."""


class NoFreeGpuError(RuntimeError):
    """Every GPU of the node has an encoder already, or the node has none."""
