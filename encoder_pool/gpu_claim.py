"""A GPU for an encoder that reserves none with Ray: the first of its node that no other encoder has claimed.

Decoders that fill a node have reserved all its GPUs, so an encoder beside them cannot reserve one too, and which pool
starts first must not matter. A claim is an exclusive lock on a file, which the kernel drops with the process; Serve's
own rank of a replica on its node would not do, since living replicas are renumbered when others stop.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from pathlib import Path
from typing import IO

import ray

from encoder_pool.errors import NoFreeGpuError

LOOK_S = 0.5

# Claims of this process; an open file keeps its lock.
_claims: list[IO[str]] = []


def claim_gpu(gpus: int, folder: Path, wait_s: float = 60.0) -> int:
    """Claims one of the GPUs 0..gpus-1 for the life of this process.

    folder: of the locks, one for each node. wait_s: how long a predecessor that is still ending may keep its claim.
    Raises NoFreeGpuError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_s
    while True:
        for index in range(gpus):
            lock = (folder / f"gpu-{index}.lock").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            _claims.append(lock)
            return index
        if time.monotonic() >= deadline:
            raise NoFreeGpuError(f"none of this node's {gpus} GPUs is free for an encoder")
        time.sleep(LOOK_S)


def claim_gpu_of_this_node() -> int:
    """Claims a GPU of the node that this Ray worker runs on, and makes it the only one that CUDA shows this process.

    To be called before CUDA is initialized. Returns its number among the node's GPUs. Raises NoFreeGpuError.
    """
    node = ray.get_runtime_context().get_node_id()
    gpus = next(int(n["Resources"].get("GPU", 0)) for n in ray.nodes() if n["NodeID"] == node)
    index = claim_gpu(gpus, Path(tempfile.gettempdir()) / f"tessera-gpus-{node}")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[index] if index < len(visible) and visible[index] else str(index)
    return index
