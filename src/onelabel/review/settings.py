"""What a review server is started with."""

from __future__ import annotations

import getpass
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

MIN_TOKEN = 16


def is_loopback(host: str) -> bool:
    """Whether listening on `host` reaches this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def default_reviewer() -> str:
    """The name of the person at this machine, for a server nobody has to sign in to."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "local"


@dataclass(frozen=True)
class Settings:
    """Everything the server needs to know; the constructor refuses what would be unsafe.

    Args:
        db: path of an SQLite file, or a URL (``sqlite:///…``, ``postgresql://…``).
        roots: folders whose pictures may be served; the first is the one examples are relative to.
        token: the shared secret people sign in with; needed unless `host` is loopback.
        allow_hosts: further names under which the page may be asked for (a proxy's, say).
        double_share: share of items that two people answer.
        lease_seconds: how long an item stays with the tab it was handed to.
        retrain: command of "retrain now"; ``{labels}`` and ``{run}`` in its words are filled in. Empty: no button.
        folder: where thumbnails, exports and training logs are kept.
        secure: the page is reached over TLS, so cookies are marked Secure.
    """

    db: str
    folder: Path
    roots: tuple[Path, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    allow_hosts: tuple[str, ...] = ()
    double_share: float = 0.0
    lease_seconds: float = 600.0
    min_probability: float = 0.05
    retrain: tuple[str, ...] = ()
    run: Path | None = None
    secure: bool = False
    cache_bytes: int = 2 << 30
    reviewer: str = field(default_factory=default_reviewer)

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < MIN_TOKEN:
            raise ValueError(f"token must have at least {MIN_TOKEN} characters, got {len(self.token)}")
        if self.token is None and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host!r} is not loopback and needs a token: pass --token-file or use 127.0.0.1"
            )
        for name, low, high in (("double_share", 0.0, 1.0), ("min_probability", 0.0, 1.0)):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} must lie in [{low:g}, {high:g}], got {value}")
        if self.lease_seconds <= 0:
            raise ValueError(f"lease_seconds must be positive, got {self.lease_seconds}")
