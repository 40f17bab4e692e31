"""What the benchmarks of this folder share: timing, the copy bandwidth, rows with their ratios, the JSON file."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Work = Callable[[], object]


def milliseconds(work: Work, device: str, *, budget: float = 0.4, at_least: int = 5) -> float:
    """The median time of `work`, after warming up, within about `budget` seconds."""
    if device != "cuda":
        work()
        spent: list[float] = []
        while len(spent) < at_least or sum(spent) < budget:
            start = time.perf_counter()
            work()
            spent.append(time.perf_counter() - start)
        return statistics.median(spent) * 1e3
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    times = max(at_least, min(200, int(budget / max(time.perf_counter() - start, 1e-6))))
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)]
    for before, after in events:
        before.record()
        work()
        after.record()
    torch.cuda.synchronize()
    return statistics.median(before.elapsed_time(after) for before, after in events)


def race(contenders: dict[str, Work], device: str, *, budget: float = 0.4, at_least: int = 5) -> dict[str, float]:
    """The median time of each; on a CPU they take turns, so that whatever else the machine does slows all alike."""
    if device == "cuda":
        return {name: milliseconds(work, device, budget=budget, at_least=at_least) for name, work in contenders.items()}
    spent: dict[str, list[float]] = {name: [] for name in contenders}
    for work in contenders.values():
        work()
    started = time.perf_counter()
    while len(next(iter(spent.values()))) < at_least or time.perf_counter() - started < budget * len(contenders):
        for name, work in contenders.items():
            turn = time.perf_counter()
            while True:  # a turn of some milliseconds, else one finds the caches as another left them
                start = time.perf_counter()
                work()
                spent[name].append(time.perf_counter() - start)
                if time.perf_counter() - turn > 5e-3:
                    break
    return {name: statistics.median(times) * 1e3 for name, times in spent.items()}


def replayed(work: Work) -> Work:
    """The work as a CUDA graph: without what the host adds."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def copy_bandwidth(device: str) -> float:
    """Bytes a second of a copy, read and written ones counted."""
    size = (1 << 31) if device == "cuda" else (1 << 27)
    source, target = torch.ones(size // 4, device=device), torch.empty(size // 4, device=device)
    return 2 * size / (milliseconds(lambda: target.copy_(source), device) / 1e3)


def machine(device: str) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, {os.cpu_count()} cores"
    return {"device": name, "torch": torch.__version__, "threads": torch.get_num_threads()}


def row(
    case: str, ms: float, *, peers: dict[str, float] | None = None, limit_ms: float | None = None
) -> dict[str, Any]:
    """A row of the common table: ours, the peers in the same unit, the limit; ratios over 1 are in our favour."""
    entry: dict[str, Any] = {"case": case, "ms": ms, "peers": peers or {}, "limit_ms": limit_ms}
    entry["ratio"] = {name: value / ms for name, value in (peers or {}).items()}
    if limit_ms is not None:
        entry["of_limit"] = limit_ms / ms
    parts = [f"{case:44s} {ms:10.3f} ms"]
    if limit_ms is not None:
        parts.append(f"limit {limit_ms:8.3f} ({limit_ms / ms:4.0%})")
    parts += [f"{name} {value:.3f} ({value / ms:.1f}×)" for name, value in (peers or {}).items()]
    print("  ".join(parts), flush=True)
    return entry


def write(path: str | None, name: str, device: str, rows: list[dict[str, Any]], **more: Any) -> None:
    if path is None:
        return
    content = {"benchmark": name, **machine(device), "rows": rows, **more}
    temporary = Path(path).with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
    os.replace(temporary, path)
