"""Downloading large files: resumed after a broken connection, checked, and complete when they have their name."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from pathlib import Path

from onelabel.system import atomic_write, progress, say

from .report import DataError

_BLOCK = 1 << 20


def download(
    url: str,
    target: str | Path,
    *,
    md5: str | None = None,
    sha256: str | None = None,
    retries: int = 5,
    timeout: float = 60.0,
    wait: float = 1.0,
) -> Path:
    """Fetch `url` into the file `target`; what is there and has the right checksum is not fetched again.

    The bytes go to `target.part`; a later call goes on where the last one stopped (HTTP Range), unless the server's
    file has changed since (ETag or Last-Modified). A wrong checksum removes the part and raises `DataError`.

    Args:
        retries: how often a broken connection is resumed in one call; a try that brought new bytes does not count.
        wait: seconds before the first retry, doubled at each.
    """
    if not re.match(r"https?://", url):
        raise DataError(f"url: {url!r}, expected http:// or https://")
    goal = Path(target)
    if goal.exists():
        if _matches(goal, md5, sha256):
            return goal
        raise DataError(f"{goal}: is there with another checksum; remove it and download again")
    goal.parent.mkdir(parents=True, exist_ok=True)
    part = goal.with_name(goal.name + ".part")
    failures = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            _fetch(url, part, timeout)
            break
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise DataError(f"{url}: {error.code} {error.reason}") from None
            problem: Exception = error
        except (OSError, http.client.HTTPException) as error:
            problem = error
        after = part.stat().st_size if part.exists() else 0
        failures = 0 if after > before else failures + 1
        if failures > retries:
            kept = f"{after:,} bytes are kept in {part.name}" if after else "no byte came: is there a network?"
            raise DataError(f"{url}: {problem}; {kept}{',' * bool(after)} run it again to go on")
        if after > before or failures == 1:  # once, not at every try
            say(f"{goal.name}: {problem}; {f'going on from {after:,} bytes' if after else 'trying again'}")
        time.sleep(min(wait * 2**failures, 30))
    if not _matches(part, md5, sha256):
        part.unlink()
        _about(part).unlink(missing_ok=True)
        raise DataError(f"{url}: the checksum is wrong, so the file was removed; run it again, or report it")
    os.replace(part, goal)
    _about(part).unlink(missing_ok=True)
    return goal


def _about(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _version(about: Path) -> str | None:
    """The version of the server's file that a part is of; None where nothing says so that can be trusted."""
    try:
        found = json.loads(about.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    version = found.get("version") if isinstance(found, dict) else None
    return version if isinstance(version, str) and version.isascii() and version.isprintable() else None


def _fetch(url: str, part: Path, timeout: float) -> None:
    """One connection: append what is missing to `part`; raises when the connection ends early."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "onelabel", "Accept-Encoding": "identity"})
    version = _version(_about(part)) if have else None
    if have and version is None:
        have = 0  # nothing says that the server's file is still the same
    if have:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", str(version))
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == 416 and error.headers.get("Content-Range", "") == f"bytes */{have}":
            return  # it was complete already
        if error.code == 416:
            part.unlink()
            raise ConnectionError("the server's file is shorter than what is here; starting anew") from None
        raise
    with response:
        resumed = response.status == 206
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise ConnectionError(f"the server answered {response.headers.get('Content-Range')!r}")
        start = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else start + int(length)
        etag = response.headers.get("ETag")
        strong = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")
        atomic_write(_about(part), json.dumps({"url": url, "version": strong, "bytes": total}))
        done = start
        with open(part, "ab" if resumed else "wb") as file, progress(part.stem, total, unit="bytes") as advance:
            advance(start)
            while block := response.read(_BLOCK):
                file.write(block)
                done += len(block)
                advance(len(block))
        if total is not None and done != total:
            raise ConnectionError(f"the connection ended at {done:,} of {total:,} bytes")


def _matches(file: Path, md5: str | None, sha256: str | None) -> bool:
    for name, expected in (("md5", md5), ("sha256", sha256)):
        if expected is None:
            continue
        digest = hashlib.new(name, usedforsecurity=False)
        with (
            open(file, "rb") as stream,
            progress(f"checking {file.name}", file.stat().st_size, unit="bytes") as advance,
        ):
            while block := stream.read(_BLOCK):
                digest.update(block)
                advance(len(block))
        if digest.hexdigest() != expected.lower():
            return False
    return True
