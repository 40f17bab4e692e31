"""Files of labels: what is written is read, and nothing else is."""

from __future__ import annotations

import builtins
import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onelabel.labels import Labels

SUFFIXES = [".npz", ".parquet"]
ternary = hnp.arrays(np.int8, st.tuples(st.integers(0, 8), st.integers(1, 6)), elements=st.sampled_from([-1, 0, 1]))
every_example = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def example() -> Labels:
    return Labels.from_matrix([[1, 0, -1], [0, 0, 0], [0, 1, 1]], class_names=["chat", "oiseau, bleu", "犬 \"'"])


@pytest.mark.parametrize("suffix", SUFFIXES)
@every_example
@given(dense=ternary, data=st.data())
def test_round_trip(tmp_path: Path, suffix: str, dense: np.ndarray, data: st.DataObject) -> None:
    width = dense.shape[1]
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    names = data.draw(st.none() | st.lists(text, min_size=width, max_size=width, unique=True))
    labels = Labels.from_matrix(dense, names)
    path = tmp_path / f"labels{suffix}"
    labels.save(path)
    loaded = Labels.load(str(path))
    assert loaded == labels
    assert loaded.class_names == labels.class_names
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"labels{suffix}"
    example().save(path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        Labels.from_classes([0]).save(path)
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=rf"No space left on device: '.*labels{suffix}'"):
        Labels.from_classes([0]).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_files_are_as_readable_as_others(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    example().save(tmp_path / "labels.npz")
    assert (tmp_path / "labels.npz").stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize("suffix", SUFFIXES)
@every_example
@given(data=st.data())
def test_damaged_files_are_refused_in_one_line(tmp_path: Path, suffix: str, data: st.DataObject) -> None:
    path = tmp_path / f"labels{suffix}"
    example().save(path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        for _ in range(data.draw(st.integers(1, 20))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    message = ""
    try:
        values = Labels.load(path).values
        assert set(np.unique(values)) <= {-1, 1}  # the damage missed what matters, or made another valid file
    except ValueError as error:
        message = str(error)
    assert "\n" not in message
    assert not message or message.startswith("path must be a file written by Labels.save")


def npz(path: Path, **changes: Any) -> Path:
    example().save(path)
    with np.load(path) as file:
        arrays = {**file, **changes}
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
    return path


def header(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


MALFORMED = [
    ({"values": None}, "it lacks values"),
    ({"header": header("[]")}, "its header is not of format"),
    (
        {"header": header('{"format": "onelabel.labels", "version": 99}')},
        "has version 99, this program reads version 1",
    ),
    ({"header": header('{"format": "onelabel.labels", "version": 1}')}, "its header lacks num_classes"),
    ({"header": header("nonsense")}, "is not: Expecting value"),
    ({"values": np.array([1, 2, 1, 1])}, "got 2 at row 0, column 2"),
    ({"indices": np.array([0, 7, 1, 2])}, "got 7 at row 0"),
    ({"indptr": np.array([0, 9])}, "indptr must ascend"),
    ({"values": np.array(["a"])}, "values must hold numbers"),
    ({"values": np.array([None], object)}, "allow_pickle=False"),
]


@pytest.mark.parametrize(("changes", "message"), MALFORMED)
def test_malformed_npz(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Labels.load(npz(tmp_path / "labels.npz", **changes))
    assert "\n" not in str(caught.value)


def test_other_parquet_files(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    path = tmp_path / "labels.parquet"
    pyarrow.parquet.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(ValueError, match=r"it has no 'onelabel\.labels' header"):
        Labels.load(path)
    example().save(path)
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.drop_columns("values"), path)
    with pytest.raises(ValueError, match="it lacks the column values"):
        Labels.load(path)
    shorter = table.set_column(1, "values", pa.array([[1], [], [1, 1]], pa.list_(pa.int8())))
    pyarrow.parquet.write_table(shorter, path)
    with pytest.raises(ValueError, match="differ in length"):
        Labels.load(path)
    pyarrow.parquet.write_table(table.set_column(1, "values", pa.array([None, [], [1]], pa.list_(pa.int8()))), path)
    with pytest.raises(ValueError, match="null rows"):
        Labels.load(path)
    pyarrow.parquet.write_table(table.set_column(1, "values", pa.array([1, 2, 3])), path)
    with pytest.raises(ValueError, match="path must be a file written by"):
        Labels.load(path)


def test_paths(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path must end in \.npz or \.parquet, got 'labels\.csv'"):
        example().save("labels.csv")
    with pytest.raises(FileNotFoundError, match="there is no"):
        Labels.load(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(ValueError, match="it is not an npz file"):
        Labels.load(tmp_path / "text.npz")


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"pip install 'onelabel\[cli\]'"):
        example().save(tmp_path / "labels.parquet")
    assert os.listdir(tmp_path) == []
