"""How much memory is free, and where a dataset's decoded pictures therefore go."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal

import torch

Placement = Literal["device", "host", "stream"]


def free_host_memory() -> int:
    """Bytes this process may still use: what the kernel calls available, within the control group's limit."""
    free = 0
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
    if not free:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    groups = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))
    for limit, used in groups:
        with contextlib.suppress(OSError, ValueError):
            base = Path("/sys/fs/cgroup")
            free = min(free, int((base / limit).read_text()) - int((base / used).read_text()))
    return max(free, 0)


def free_device_memory(device: torch.device) -> int:
    """Bytes free on a CUDA device; 0 where that cannot be asked."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.mem_get_info(device)[0])


def choose_placement(
    needed: int,
    device: torch.device,
    *,
    share: float = 0.5,
    device_free: int | None = None,
    host_free: int | None = None,
) -> tuple[Placement, str]:
    """Where `needed` bytes go: the device, else host memory, else nowhere (streamed); and the reason in words.

    At most `share` of what is free is taken, because the network and its activations need the rest.
    """
    on_device = free_device_memory(device) if device_free is None else device_free
    on_host = free_host_memory() if host_free is None else host_free
    if device.type != "cpu" and needed <= share * on_device:
        return "device", f"{_gib(needed)}, kept on {device} ({_gib(on_device)} free)"
    if needed <= share * on_host:
        where = "" if device.type == "cpu" else f", and too much for {device}, {_gib(on_device)} free"
        return "host", f"{_gib(needed)}, kept in memory ({_gib(on_host)} free{where})"
    return "stream", f"{_gib(needed)}, over {share:.0%} of free memory ({_gib(on_host)}): decoded again each epoch"


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"
