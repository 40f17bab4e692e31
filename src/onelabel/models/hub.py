"""The hub that pretrained weights come from, or the copies of them on this machine where it is out of reach."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from onelabel.system import need

#: How long the hub may take to be reached before it counts as away.
SECONDS = 3.0


@contextlib.contextmanager
def hub() -> Iterator[str | None]:
    """Let the hub's client work; yields the host that cannot be reached, None where it can.

    The client tries every file again for half a minute, even one of which it has a copy. Where its host (or the proxy
    on the way) does not answer at all it is told to work offline: copies are used at once, and what is missing is
    an error at once.
    """
    try:
        from huggingface_hub import constants
    except ImportError:  # then timm downloads from elsewhere
        yield None
        return
    known: Any = constants
    host = urlsplit(str(known.ENDPOINT)).hostname or ""
    if known.HF_HUB_OFFLINE or reachable(_next_hop(str(known.ENDPOINT))):
        yield None
        return
    known.HF_HUB_OFFLINE = True
    try:
        yield host
    finally:
        known.HF_HUB_OFFLINE = False


def kept_copy(name: str) -> str | None:
    """The copy that this machine keeps of a timm model's pretrained weights; None without one. Nobody is asked."""
    source: Any = need("timm.models", "vision").get_pretrained_cfg(name)
    if source is None or not source.has_weights:
        raise ValueError(f"timm has no pretrained weights of {name}; give --weights FILE, or --weights random")
    if not source.hf_hub_id:
        place = os.path.join(need("torch.hub", "vision").get_dir(), "checkpoints", os.path.basename(source.url))
        return place if os.path.isfile(place) else None
    look = need("huggingface_hub", "vision").try_to_load_from_cache
    files = ("model.safetensors", "open_clip_model.safetensors", "pytorch_model.bin")  # as timm looks for them
    found = (look(source.hf_hub_id, file) for file in files)
    return next((path for path in found if isinstance(path, str)), None)


def reachable(address: str, seconds: float = SECONDS) -> bool:
    """Whether a connection to an address can be opened in this time; names are looked up within it too."""
    parts = urlsplit(address)
    opened: list[bool] = []

    def knock() -> None:
        port = parts.port or (80 if parts.scheme == "http" else 443)
        with contextlib.suppress(OSError), socket.create_connection((parts.hostname, port), timeout=seconds):
            opened.append(True)

    thread = threading.Thread(target=knock, daemon=True)  # a resolver that does not answer cannot be interrupted
    thread.start()
    thread.join(seconds)
    return bool(opened)


def _next_hop(address: str) -> str:
    """The proxy on the way to an address, or the address."""
    parts = urlsplit(address)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or urllib.request.proxy_bypass(parts.hostname or ""):
        return address
    return proxy if "://" in proxy else f"http://{proxy}"
