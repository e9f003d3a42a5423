"""The Ray runtime environment in which the process of every replica starts."""

from __future__ import annotations

REPLICA_ENV = {
    "env_vars": {
        # By default glibc gives up to eight heaps to every core, one to each thread that comes, and each grows to the
        # most that its thread ever needed: under load a decoder with 16 grew by 3 MB a minute, with two it did not.
        # Read once, when a process starts.
        "MALLOC_ARENA_MAX": "2",
    }
}
