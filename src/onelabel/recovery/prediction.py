"""`predict`: a run's classifier over pictures, or rows of features, streamed to Parquet, JSON lines or CSV."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from onelabel.data import DataError, ImageError, square_image
from onelabel.data.images import FOREIGN, SUFFIXES
from onelabel.data.matrices import read_features
from onelabel.recovery.prediction_file import PredictionFile, refuse_unreadable
from onelabel.system import progress, say, workers
from onelabel.training import Run
from onelabel.training.carried import Probabilities, calibration_of
from onelabel.training.restore import feature_width

MAX_DOWNLOAD = 64 << 20
LISTS = (".txt", ".list")


def find_pictures(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Pictures, folders (searched, save what is hidden), and .txt lists of paths or http(s) addresses, by line."""
    found: list[str] = []
    for given in paths:
        text = os.fspath(given)
        path = Path(text)
        if _is_url(text):
            found.append(text)
        elif path.is_dir():
            for folder, inner, names in os.walk(path):
                inner[:] = sorted(name for name in inner if name[0] != ".")
                found += [os.path.join(folder, n) for n in sorted(names) if n[0] != "." and _is_picture(n)]
        elif path.suffix.lower() in LISTS and path.is_file():
            lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
            base = path.parent
            found += [x if _is_url(x) or os.path.isabs(x) else str(base / x) for x in lines if x and x[0] != "#"]
        elif path.exists():
            found.append(text)
        else:
            raise FileNotFoundError(f"{text}: no such picture, folder or list")
    return found


def _is_picture(name: str) -> bool:
    """By its suffix, also one that is not read and so counts as failed."""
    return os.path.splitext(name)[1].lower() in SUFFIXES | FOREIGN


def predict(
    run: Run | str | os.PathLike[str],
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    threshold: float = 0.5,
    floor: float = 0.05,
    top: int = 20,
    shard: tuple[int, int] = (1, 1),
    batch_size: int = 32,
    device: str | None = None,
    threads: int | None = None,
    raw: bool = False,
) -> dict[str, int]:
    """Score pictures; `out` is .parquet or .jsonl, one line a picture: path, labels, classes, probabilities, error.

    Or .csv, for people: path, labels (by |, so no class may have it in its name), error, and a column of probabilities
    for every class.

    A run that was trained on features scores rows of files with such features (.npy, .npz, .parquet, .arff); "picture"
    below is then a row, whose path is FILE:ROW, counted from 0.

    `labels` are the classes at or above `threshold`; `classes` and `probabilities` these and the `top` likeliest from
    `floor` on. Probabilities are calibrated where `train` or `recover` has left a calibration in the run, else the
    classifier's own sigmoid. A picture that cannot be read has an error and no labels.

    Args:
        raw: give the sigmoid all the same.
        shard: (i, n) takes every n-th picture from the i-th on (1-based), for n processes on n devices.

    Returns:
        how many `pictures` were scored, how many `failed`, and whether probabilities are `calibrated`.
    """
    at, count = shard
    if not 1 <= at <= count:
        raise ValueError(f"shard must be i/n with 1 ≤ i ≤ n, got {at}/{count}")
    target = Path(out)
    if target.suffix not in (".parquet", ".jsonl", ".csv"):
        raise ValueError(f"out must end in .parquet, .jsonl or .csv, got {str(target)!r}")
    for name, value in (("threshold", threshold), ("floor", floor)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name}: {value}, expected a probability, 0 to 1")
    if top < 1:
        raise ValueError(f"top: {top}, expected at least 1")
    found = run if isinstance(run, Run) else Run.load(Path(run))
    if target.suffix == ".csv":
        refuse_unreadable(found.class_names)
    batches: Iterator[tuple[list[str], NDArray[Any], list[str | None]]]
    if not found.classifier.takes_pictures:
        total, batches = _rows(found, paths, shard, batch_size)
    else:
        given = find_pictures(paths)
        if not given:
            raise FileNotFoundError(f"{', '.join(map(str, paths))}: no pictures there ({', '.join(sorted(SUFFIXES))})")
        pictures = given[at - 1 :: count]
        total, batches = len(pictures), _batches(pictures, found.config.size, batch_size, threads)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    calibration = None if raw else calibration_of(found)
    model = Probabilities(found.classifier, calibration).to(place).eval()
    names = np.asarray(found.class_names, dtype=object)
    failed = 0
    if target.suffix == ".csv":
        floor, top = 0.0, len(names)
    with PredictionFile(target, found.class_names) as write, progress("predicting", total) as advance:
        for some, inputs, errors in batches:
            with torch.inference_mode():
                p = model(torch.from_numpy(inputs).to(place)).cpu().numpy()
            write(
                [
                    _line(path, row, error, names, threshold, floor, top)
                    for path, row, error in zip(some, p, errors, strict=True)
                ]
            )
            failed += sum(error is not None for error in errors)
            advance(len(some))
    if failed and failed == total:
        raise ValueError(
            f"none of {total} could be read, such as {_shown(some[0])}: {errors[0]}; {target} has them all"
        )
    if failed:
        say(f"{failed} of {total} could not be read; their lines have an error")
    return {"pictures": total - failed, "failed": failed, "calibrated": calibration is not None}


def _line(
    path: str, p: NDArray[np.float32], error: str | None, names: Any, threshold: float, floor: float, top: int
) -> dict[str, Any]:
    if error is not None:
        return {"path": _shown(path), "labels": [], "classes": [], "probabilities": [], "error": _shown(error)}
    order = np.argsort(-p, kind="stable")
    yes = [str(names[i]) for i in order if p[i] >= threshold]
    order = order[: max(top, len(yes))]
    order = order[p[order] >= min(floor, threshold)]
    kept = [round(float(p[i]), 6) for i in order]
    return {
        "path": _shown(path),
        "labels": yes,
        "classes": [str(names[i]) for i in order],
        "probabilities": kept,
        "error": None,
    }


def _shown(text: str) -> str:
    """A name that every encoding can write: bytes that are no UTF-8 as \\x…"""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _rows(
    run: Run, paths: Sequence[str | os.PathLike[str]], shard: tuple[int, int], batch: int
) -> tuple[int, Iterator[tuple[list[str], NDArray[np.float32], list[str | None]]]]:
    """How many rows of features the files hold for this shard, and their batches."""
    width = feature_width(run.classifier)
    files = {os.fspath(path): read_features(Path(path), without=run.class_names) for path in paths}
    for name, X in files.items():
        if X.shape[1] != width:
            raise DataError(f"{name}: {X.shape[1]} features a row, expected {width} as in training")
    at, count = shard
    ends = np.cumsum([0, *map(len, files.values())])
    mine = np.arange(at - 1, ends[-1], count)

    def batches() -> Iterator[tuple[list[str], NDArray[np.float32], list[str | None]]]:
        for (name, X), first, last in zip(files.items(), ends[:-1], ends[1:], strict=True):
            chosen = mine[(mine >= first) & (mine < last)] - first
            for start in range(0, len(chosen), batch):
                rows = chosen[start : start + batch]
                some = np.asarray(X[rows], np.float32)
                fine: NDArray[np.bool_] = np.asarray(np.isfinite(some).all(1))
                errors = [None if ok else "a feature is not finite" for ok in fine]
                yield [f"{name}:{row}" for row in rows], np.where(fine[:, None], some, np.float32(0)), errors

    return len(mine), batches()


def _batches(
    pictures: list[str], size: int, batch: int, threads: int | None
) -> Iterator[tuple[list[str], NDArray[np.uint8], list[str | None]]]:
    """Squares of pictures, the next batch being decoded while one is scored."""

    def square(path: str) -> tuple[NDArray[np.uint8] | None, str | None]:
        try:
            raw: Any = _download(path) if _is_url(path) else path
            return square_image(raw, size, name=path), None
        except (ImageError, OSError, ValueError) as error:
            return None, str(error).splitlines()[0] if str(error) else type(error).__name__

    starts = list(range(0, len(pictures), batch))
    with ThreadPoolExecutor(max(1, workers(threads))) as pool:
        waiting = [pool.submit(square, path) for path in pictures[:batch]]
        for start in starts:
            current, some = waiting, pictures[start : start + batch]
            following = pictures[start + batch : start + 2 * batch]
            waiting = [pool.submit(square, path) for path in following]
            made = [future.result() for future in current]
            squares = np.full((len(some), size, size, 3), 128, np.uint8)
            for i, (picture, _) in enumerate(made):
                if picture is not None:
                    squares[i] = picture
            yield some, squares, [error for _, error in made]


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _download(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        content: bytes = answer.read(MAX_DOWNLOAD + 1)
    if len(content) > MAX_DOWNLOAD:
        raise ValueError(f"{url}: more than {MAX_DOWNLOAD >> 20} MiB")
    return content
