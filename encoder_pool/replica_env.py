"""The Ray runtime environment in which the process of every replica starts, whatever its machine's environment says.

All of it is read once, when a process starts or imports Ray Serve.
"""

from __future__ import annotations

REPLICA_ENV = {
    "env_vars": {
        # By default glibc gives up to eight heaps to every core, one to each thread that comes, and each grows to the
        # most that its thread ever needed: under load a decoder with 16 grew by 3 MB a minute, with two it did not.
        "MALLOC_ARENA_MAX": "2",
        # Serve runs a replica's code, and a handle's, in loops of their own, so that code which blocks harms only
        # itself. Ours does not block, and every item of a request would wait for another thread to be woken.
        "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
        "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    }
}
