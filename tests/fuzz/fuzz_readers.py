"""Every reader of files: how to make it a good input, and how to read it. Data and labels here; runs in `fuzz_runs`."""

from __future__ import annotations

import io
import itertools
import json
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onelabel.labels import Labels

Make = Callable[[Path], None]
Read = Callable[[Path], Any]


@dataclass(frozen=True)
class Reader:
    """`make` writes a good input into an empty folder, `read` reads it; `victims` are the files that get damaged."""

    name: str
    victims: tuple[str, ...]  # wildcards below the folder
    make: Make
    read: Read


READERS: dict[str, Reader] = {}


def reader(name: str, *victims: str, make: Make) -> Callable[[Read], Read]:
    def enter(read: Read) -> Read:
        READERS[name] = Reader(name, victims, make, read)
        return read

    return enter


def said_in_one_line(error: Exception) -> None:
    assert str(error)
    assert "\n" not in str(error)


def picture(seed: int = 0, form: str = "JPEG", size: tuple[int, int] = (20, 14)) -> bytes:
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form)
    return stream.getvalue()


# -- labels ------------------------------------------------------------------------------------------------------------


def some_labels() -> Labels:
    return Labels.from_matrix(np.array([[1, 0, -1], [0, 1, 0], [0, 0, 1], [1, 1, 0]], np.int8), ["a", "b", "ç"])


for _suffix in ("npz", "parquet"):

    @reader(f"labels.{_suffix}", "*", make=lambda folder, s=_suffix: some_labels().save(folder / f"labels.{s}"))
    def _(folder: Path, s: str = _suffix) -> None:
        Labels.load(folder / f"labels.{s}").to_dense()


# -- own data ----------------------------------------------------------------------------------------------------------


def load(*args: Any, **options: Any) -> None:
    """Load a dataset and look at what training would look at."""
    from onelabel.data import load_dataset

    splits = load_dataset(*args, **options)
    for part in splits.parts.values():
        part.observed.to_dense()
        assert len(part) == len(part.observed)
        for row in range(min(2, len(part))):
            _look(part, row)


def _look(part: Any, row: int) -> None:
    from onelabel.data import ImageError

    if hasattr(part, "source"):
        try:
            part.source.square(row, 8)
        except ImageError as error:
            said_in_one_line(error)


def _table(folder: Path, suffix: str) -> None:
    (folder / "img").mkdir()
    names = [f"img/{i}.jpg" for i in range(6)]
    for i, name in enumerate(names):
        (folder / name).write_bytes(picture(i))
    labels, parts = ["cat", "dog|owl", "cat", "owl", "dog", "cat"], ["train"] * 4 + ["val", "test"]
    target = folder / f"table.{suffix}"
    if suffix == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as parquet

        lists = [label.split("|") for label in labels]
        parquet.write_table(pa.table({"path": names, "labels": lists, "split": parts}), target)
    elif suffix == "jsonl":
        rows = ({"path": n, "label": w, "split": p} for n, w, p in zip(names, labels, parts, strict=True))
        target.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        by = "\t" if suffix == "tsv" else ","
        lines = [by.join(row) for row in zip(names, labels, parts, strict=True)]
        target.write_text("\n".join([by.join(("path", "label", "split")), *lines]) + "\n")


for _suffix in ("csv", "tsv", "jsonl", "parquet"):

    @reader(f"table.{_suffix}", "table.*", make=lambda folder, s=_suffix: _table(folder, s))
    def _(folder: Path, s: str = _suffix) -> None:
        load(folder / f"table.{s}", root=folder)


def _manifest(folder: Path) -> None:
    from onelabel.data.manifest import build_manifest

    for name, seed in itertools.product(("cat", "dog"), range(3)):
        (folder / "own" / name).mkdir(parents=True, exist_ok=True)
        (folder / "own" / name / f"{seed}.jpg").write_bytes(picture(seed))
    build_manifest(folder / "own", folder / "manifest.parquet", workers=1)
    (folder / "names.txt").write_text("cat\ndog\nowl\n")


@reader("manifest", "manifest.parquet", make=_manifest)
def _(folder: Path) -> None:
    """Refreshing: what cannot be used of the old one is made anew, so this never fails."""
    from onelabel.data.manifest import build_manifest

    try:
        load(folder / "manifest.parquet", root=folder / "own")
    finally:
        assert build_manifest(folder / "own", folder / "manifest.parquet", workers=1).rows == 6


@reader("class names", "names.txt", make=_manifest)
def _(folder: Path) -> None:
    load(folder / "own", class_names=folder / "names.txt")


def _shard(folder: Path) -> None:
    with tarfile.open(folder / "train-0.tar", "w") as archive:
        for i in range(4):
            label = json.dumps({"labels": ["cat", "dog"][: i % 2 + 1], "negatives": ["owl"]}).encode()
            for suffix, data in (("jpg", picture(i)), ("json", label)):
                member = tarfile.TarInfo(f"{i:03d}.{suffix}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


@reader("webdataset", "*.tar", make=_shard)
def _(folder: Path) -> None:
    load(folder / "train-0.tar", verify="decode")


def _pictures(folder: Path) -> None:
    from PIL import Image

    for i, form in enumerate(("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM")):
        (folder / f"a.{form.lower()}").write_bytes(picture(i, form))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (10, 30)).save(folder / "b.jpeg", exif=exif)
    Image.fromarray(np.arange(300, dtype=np.uint16).reshape(15, 20)).save(folder / "deep.png")


@reader("pictures", "*", make=_pictures)
def _(folder: Path) -> None:
    from onelabel.data import ImageError, square_image
    from onelabel.data.images import inspect_image, read_image

    for path in folder.iterdir():
        for read in (read_image, inspect_image, lambda raw: square_image(raw, 8, draft=True)):
            try:
                read(str(path))
            except ImageError as error:  # what a loader reports
                said_in_one_line(error)


# -- matrices ----------------------------------------------------------------------------------------------------------


def _matrix(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 3)).astype(np.float32), (rng.random((20, 2)) < 0.5).astype(np.int8)
    y[:, 0] |= ~y.any(1)
    np.savez(folder / "m.npz", X=X, true=y, X_test=X[:5], true_test=y[:5], class_names=np.array(["a", "b"]))
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", y)
    columns = {"a": y[:, 0], "b": y[:, 1], "f": X[:, 0], "g": X[:, 1]}
    parquet.write_table(pa.table(columns), folder / "m.parquet")
    lists = {"a": y[:, 0], "b": y[:, 1], "X": X.tolist()}
    parquet.write_table(pa.table(lists), folder / "l.parquet")
    head = "@relation 'm: -C 2'\n@attribute a {0,1}\n@attribute b {0,1}\n@attribute f numeric\n"
    head += "@attribute 'w x' {red,green,'dark blue'}\n@data\n"
    colours = ("red", "green", "'dark blue'")
    values = zip(*y.T, X[:, 0], strict=True)
    rows = [f"{p},{q},{x:.3f},{colours[i % 3]}" for i, (p, q, x) in enumerate(values)]
    (folder / "m.arff").write_text(head + "\n".join(rows) + "\n")
    sparse = ["{" + ",".join(f"{i} {v}" for i, v in ((0, p), (1, q), (2, 0.5)) if v) + "}" for p, q in y]
    (folder / "s.arff").write_text(head.replace(" -C 2", "") + "\n".join(sparse) + "\n")
    (folder / "s.xml").write_text('<labels><label name="a"/><label name="b"/></labels>')


for _file, _options in (("m.npz", {}), ("m.parquet", {"kind": "matrix", "labels": ["a", "b"]}), ("m.arff", {})):

    @reader(f"matrix {_file}", _file, make=_matrix)
    def _(folder: Path, file: str = _file, options: Any = _options) -> None:
        load(folder / file, **options)


@reader("matrix npy", "x.npy", "y.npy", make=_matrix)
def _(folder: Path) -> None:
    load(folder / "x.npy", labels=folder / "y.npy")


@reader("matrix lists", "l.parquet", make=_matrix)
def _(folder: Path) -> None:
    load(folder / "l.parquet", kind="matrix", labels=["a", "b"])


@reader("matrix sparse arff", "s.arff", "s.xml", make=_matrix)
def _(folder: Path) -> None:
    load(folder / "s.arff")


# -- archives ----------------------------------------------------------------------------------------------------------


def _archives(folder: Path) -> None:
    files = {"a.txt": b"hello" * 50, "d/b.txt": b"there", "d/c.bin": bytes(range(256))}
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    for file, mode in (("a.tar", "w"), ("a.tar.gz", "w:gz"), ("a.tar.bz2", "w:bz2"), ("a.tar.xz", "w:xz")):
        with tarfile.open(folder / file, mode) as tar:
            for name, data in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


for _file in ("a.zip", "a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz"):

    @reader(f"archive {_file}", _file, make=_archives)
    def _(folder: Path, file: str = _file) -> None:
        from onelabel.data.archives import extract

        target = folder / "out" / "inner"
        try:
            extract(folder / file, target, max_bytes=1 << 20, max_members=100)
        finally:
            assert [p.name for p in (folder / "out").iterdir()] == ["inner"]
            assert not [p for p in target.rglob("*") if p.is_symlink() or p.name.startswith(".extract-")]
