"""Where one replay of an encoder's graph spends its time, and what the GPU's clock does under sustained load."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

# Group of kernels -> parts of kernel names, the first group that fits.
GROUPS = {
    "matrix products": ("gemm", "nvjet", "cutlass", "splitK"),
    "attention": ("fmha", "flash", "sdpa", "cudnn"),
    "residual + LayerNorm": ("add_norm", "embed"),
    "rotary": ("rotate",),
    "quantize": ("quantize",),
    "patches": ("patches",),
}
SUSTAINED_S = 2.0


def kernel_times(replay: Callable[[], Any]) -> dict[str, dict[str, float]]:
    """Milliseconds and number of kernels by group over one replay on an idle GPU; "gaps" is time between kernels."""
    replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        replay()
        torch.cuda.synchronize()
    kernels = [event for event in profiler.events() if event.device_type == DeviceType.CUDA]
    groups: dict[str, dict[str, float]] = defaultdict(lambda: {"ms": 0.0, "kernels": 0})
    for kernel in kernels:
        named = (group for group, parts in GROUPS.items() if any(part in kernel.name for part in parts))
        group = groups[next(named, "other")]
        group["ms"] += kernel.self_device_time_total / 1e3
        group["kernels"] += 1
    span = max(k.time_range.end for k in kernels) - min(k.time_range.start for k in kernels)
    busy = sum(group["ms"] for group in groups.values())
    groups["gaps"] = {"ms": span / 1e3 - busy, "kernels": 0}
    return dict(groups)


def clock_under_load(replay: Callable[[], Any]) -> dict[str, float]:
    """MHz of the multiprocessors and watts of the GPU, cool and after `SUSTAINED_S` seconds of replays back to back."""
    torch.cuda.synchronize()
    time.sleep(1)
    for _ in range(3):
        replay()
    first_mhz = torch.cuda.clock_rate()
    end = time.monotonic() + SUSTAINED_S
    while time.monotonic() < end:
        for _ in range(8):
            replay()
        mhz, watts = torch.cuda.clock_rate(), torch.cuda.power_draw() / 1e3
        torch.cuda.synchronize()
    return {"first_mhz": first_mhz, "sustained_mhz": mhz, "sustained_watts": watts}
