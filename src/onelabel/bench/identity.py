"""Who claims a run: a machine and a process, told apart from others of the same name or number."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any


def identity() -> dict[str, Any]:
    """Who claims: the machine with its process namespace (two containers may share a name), and the process."""
    parts = [socket.gethostname()]
    for source in (lambda: Path("/proc/sys/kernel/random/boot_id").read_text().strip(), _namespace):
        with contextlib.suppress(OSError):
            parts.append(source())
    return {"machine": "/".join(parts), "pid": os.getpid(), "born": _born(os.getpid())}


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def _born(pid: int) -> str | None:
    """When a process started, in the kernel's ticks: a number may be given to another process later."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def is_dead(owner: dict[str, Any]) -> bool:
    """Whether a process of this machine that claimed a run is gone."""
    pid, born = owner.get("pid"), owner.get("born")
    return isinstance(pid, int) and born is not None and _born(pid) != born
