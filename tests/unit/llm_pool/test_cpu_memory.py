"""What bounds the memory of a decoder on CPUs, and vLLM's doors for it."""

from __future__ import annotations

import asyncio
import os

import pytest
from vllm.utils.import_utils import resolve_obj_by_qualname
from vllm.v1.worker.worker_base import WorkerBase

from llm_pool import cpu_memory
from llm_pool.cpu_memory import EXTENSION, TrimmingWorker, WorkerTrimmer, bound_memory


def test_the_users_own_bounds_of_memory_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in cpu_memory.WORKERS_ENV:
        monkeypatch.setenv(variable, "7")
    bound_memory()
    assert {os.environ[variable] for variable in cpu_memory.WORKERS_ENV} == {"7"}
    for variable in cpu_memory.WORKERS_ENV:
        monkeypatch.delenv(variable)
    bound_memory()
    assert {variable: os.environ.pop(variable) for variable in cpu_memory.WORKERS_ENV} == cpu_memory.WORKERS_ENV


def test_vllm_finds_the_extension_and_it_hides_nothing_of_a_workers() -> None:
    assert resolve_obj_by_qualname(EXTENSION) is TrimmingWorker
    own = {name for name in vars(TrimmingWorker) if not name.startswith("__")}
    assert own == {"tessera_trim_heaps"}
    assert not own & set(dir(WorkerBase))


class Client:
    """Stands for vLLM's client; its workers are in a step until `go`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.go = asyncio.Event()

    async def collective_rpc(self, method: str) -> None:
        self.calls.append(method)
        await self.go.wait()
        raise RuntimeError("the engine died")


async def test_nobody_waits_for_a_trim_and_a_second_one_does_not_pile_up() -> None:
    client = Client()
    trimmer = WorkerTrimmer(client)  # type: ignore[arg-type]
    for _ in range(3):
        trimmer.trim()
        await asyncio.sleep(0)
    assert client.calls == ["tessera_trim_heaps"]
    client.go.set()
    await asyncio.sleep(0.01)
    trimmer.trim()
    await asyncio.sleep(0)
    assert len(client.calls) == 2
    trimmer.stop()
