"""`onelabel data brighten`: 12-bit pictures in files of 16 bits, made as bright as they were taken."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from onelabel.system import need, progress, refuse_existing

from .images import TWELVE_BITS, ImageError, is_dim, opened
from .paths import list_pictures
from .report import DataError, Report

FACTOR = 16  # 4095 becomes 65520, of 65535


def brighten(source: str | Path, out: str | Path, report: Report | None = None) -> tuple[int, int]:
    """Copy a folder of pictures, the values of its 16-bit greys multiplied by 16; how many were, of how many.

    All of them, so that they can be compared: where one holds more than 12 bits nothing is written. Pictures that
    cannot be read are not copied; `report` names them.
    """
    root, target = Path(source).expanduser(), Path(out).expanduser()
    report = report if report is not None else Report()
    if not root.is_dir():
        raise DataError(f"{root}: no such folder; give the one that holds the pictures")
    if target.resolve().is_relative_to(root.resolve()):
        raise DataError(f"{target}: lies in {root}, whose pictures it would become; give a folder beside it")
    refuse_existing(target)
    names = list_pictures(root, report)
    grey: dict[str, bool] = {}
    with progress("looking at pictures", len(names)) as advance:
        for name in names:
            try:
                grey[name] = _is_grey(root, name)
            except ImageError as error:
                report.add(error.kind, name, error.detail)
            advance(1)
    if not any(grey.values()):
        raise DataError(f"{root}: none of its {len(names):,} pictures is a grey one of 16 bits, nothing to brighten")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        made = Path(folder) / "pictures"  # moved when it is whole: half a folder would be trained on
        with progress("writing pictures", len(grey)) as advance:
            for name, wanted in grey.items():
                (made / name).parent.mkdir(parents=True, exist_ok=True)
                _write(root, name, made / name) if wanted else shutil.copyfile(root / name, made / name)
                advance(1)
        made.replace(target)
    return sum(grey.values()), len(grey)


def _is_grey(root: Path, name: str) -> bool:
    """Whether a picture is a grey one of 16 bits; refused where it needs more than 12."""
    with opened(str(root / name), name) as image:
        grey = image.mode.startswith("I")
        values: Any = np.asarray(image) if grey else None
        dim = grey and is_dim(image)
    if grey and not dim:
        raise DataError(f"{name}: holds {values.max()}, and 12 bits end at {TWELVE_BITS}: nothing is brightened")
    return grey


def _write(root: Path, name: str, target: Path) -> None:
    with opened(str(root / name), name) as image:
        brighter = need("PIL.Image", "vision").fromarray(np.asarray(image).astype(np.uint16) * FACTOR)
        brighter.save(target, format=image.format, exif=image.getexif())
