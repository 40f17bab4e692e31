"""Extracting archives from strangers: nothing is written outside the target, no links, no devices, bounded sizes."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from onelabel.system import Advance, one_line, progress

from .report import DataError

MAX_BYTES = 64 << 30  # COCO's training pictures are 13 GiB
MAX_MEMBERS = 2_000_000
Member = tuple[str, int, "IO[bytes] | None"]  # path, declared size, content (None for a folder)


def extract(
    archive: str | Path, target: str | Path, *, max_bytes: int = MAX_BYTES, max_members: int = MAX_MEMBERS
) -> list[Path]:
    """Extract a .tar, .tar.gz, .tgz or .zip into the folder `target`; returns its new top-level entries.

    Everything is first written into a fresh folder inside `target` and moved into place at the end, so a refused or
    damaged archive leaves nothing behind. Absolute paths, `..`, links, devices and anything over the bounds raise
    `DataError`. A file that is already there is replaced.
    """
    source, goal = Path(archive), Path(target)
    goal.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".extract-", dir=goal))
    try:
        with progress(f"extracting {source.name}", source.stat().st_size, unit="bytes") as advance:
            written = members = 0
            for name, size, content in _members(source, advance):
                members += 1
                if members > max_members:
                    raise DataError(f"{source}: more than {max_members:,} members; refused")
                place = fresh / _safe(name, source)
                if content is None:
                    place.mkdir(parents=True, exist_ok=True)
                    continue
                if written + size > min(max_bytes, shutil.disk_usage(goal).free + written):
                    raise DataError(
                        f"{source}: unpacks to more than {max_bytes:,} bytes or the disk's free space; refused"
                    )
                place.parent.mkdir(parents=True, exist_ok=True)
                # Counted while copying: a header may say less than what follows.
                written += _copy(content, place, max_bytes - written, source)
        entries = sorted(fresh.iterdir())
        for entry in entries:
            _move(entry, goal / entry.name)
        return [goal / entry.name for entry in entries]
    except DataError:
        raise
    except Exception as error:  # tarfile, zipfile, zlib and lzma each raise their own on a damaged file
        raise DataError(f"{source}: cannot be extracted ({one_line(error)}); download it again") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _members(source: Path, advance: Advance) -> Iterator[Member]:
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            for info in archive.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise DataError(f"{source}: {info.filename!r} is a link or a device; refused")
                if info.is_dir():
                    yield info.filename, 0, None
                else:
                    with archive.open(info) as content:
                        yield info.filename, info.file_size, content
                advance(info.compress_size)
        return
    with tarfile.open(source, "r:*") as tar:
        for member in tar:
            if member.isdir():
                yield member.name, 0, None
            elif member.isreg():
                yield member.name, member.size, tar.extractfile(member)
            else:
                raise DataError(f"{source}: {member.name!r} is a link or a device; refused")
            advance(member.size)


def _safe(name: str, source: Path) -> Path:
    parts = name.replace("\\", "/").split("/")
    absolute = name.startswith(("/", "\\")) or (len(parts[0]) == 2 and parts[0].endswith(":"))
    if absolute or ".." in parts or "\0" in name:
        raise DataError(f"{source}: {name!r} would be written outside the target; refused")
    return Path(*[part for part in parts if part not in ("", ".")])


def _copy(content: IO[bytes], place: Path, room: int, source: Path) -> int:
    written = 0
    with open(place, "wb") as file:
        while block := content.read(1 << 20):
            written += len(block)
            if written > room:
                raise DataError(f"{source}: unpacks to more than is allowed; refused")
            file.write(block)
    return written


def _move(entry: Path, goal: Path) -> None:
    """Into place, folder by folder; an existing link in the target is replaced and never followed."""
    if goal.is_symlink() or (goal.exists() and goal.is_dir() != entry.is_dir()):
        if goal.is_dir() and not goal.is_symlink():
            raise DataError(f"{goal}: is a folder, and the archive has a file of that name; move it away")
        goal.unlink()
    if entry.is_dir() and goal.is_dir():
        for child in entry.iterdir():
            _move(child, goal / child.name)
    else:
        os.replace(entry, goal)
