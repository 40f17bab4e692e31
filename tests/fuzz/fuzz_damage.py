"""Damaging files: blindly, byte by byte, and knowingly, keeping the container whole while its contents lie."""

from __future__ import annotations

import io
import json
import pickle
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TOKENS = (b"99999999999999999999", b"-1", b"NaN", b"Infinity", b"1e999", b"null", b"{}", b"[]", b'""', b"true", b"\0")
TOKENS += (b"../../../../tmp/x", b"\xff\xfe", b"\r\n", b"'", b'"', b"{", b"%", b"<!ENTITY", b"9" * 5000)


class Bomb:
    """A pickle that, when loaded, leaves a mark."""

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.mkdir, ("pickle-was-executed",)


WHOLES: tuple[Callable[[bytes], bytes], ...] = (
    lambda data: b"",
    lambda data: b"\0" * len(data),
    lambda data: pickle.dumps(Bomb()),
    lambda data: b"[" * 100_000,
    lambda data: data * 2,
    lambda data: data[: len(data) // 2],
    lambda data: data[:-1],
    lambda data: data[::-1],
    lambda data: b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(128),
)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """One to four blind changes."""
    if rng.random() < 0.2:
        return rng.choice(WHOLES)(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        length = min(rng.choice((1, 2, 4, 16, 64)), len(data) - at)
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at] + rng.randbytes(length) + data[at + length :]
        elif kind == 2:
            data = data[:at] + data[at + length :]
        elif kind == 3:
            data = data[:at] + data[at : at + length] * rng.randint(2, 9) + data[at + length :]
        elif kind == 4:
            data = data[:at] + rng.choice(TOKENS) + data[at + length :]
        else:
            data = data[:at] + rng.choice((b"\0", b"\xff")) * length + data[at + length :]
    return data


# -- knowingly ---------------------------------------------------------------------------------------------------------

VALUES: tuple[Any, ...] = (None, True, -1, 0, 3, 10**30, -0.5, float("nan"), float("inf"), "", "x", "../x", "9" * 400)
VALUES += ([], {}, [1], {"x": 1}, [[]], ["a", 2, None], 2**63, 1e300, "1", 999)


def lying_json(value: Any, rng: random.Random) -> Any:
    """The value with one node replaced, removed, doubled or renamed."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(sorted(value, key=str))
        kind = rng.randrange(8)
        if kind == 0:
            return {k: v for k, v in value.items() if k != key}
        if kind == 1:
            return {(f"{k}x" if k == key else k): v for k, v in value.items()}
        return {**value, key: lying_json(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        kind = rng.randrange(8)
        if kind == 0:
            return value[:at] + value[at + 1 :]
        if kind == 1:
            return [*value, value[at]]
        return [*value[:at], lying_json(value[at], rng), *value[at + 1 :]]
    return rng.choice(VALUES)


def lying_array(array: Any, rng: random.Random) -> Any:
    """An array of another type or shape, or with one strange number."""
    array = np.asarray(array)
    changes: list[Callable[[], Any]] = [
        lambda: array.astype(
            rng.choice(("float64", "int8", "uint64", "complex64", "U8", "S3", "bool", "datetime64[s]"))
        ),
        lambda: array[:0] if array.ndim else array.ravel()[:0],
        lambda: array.reshape(-1),
        lambda: array[None],
        lambda: array.ravel()[:-1],
        lambda: np.asfortranarray(array),
        lambda: np.concatenate([array.ravel(), array.ravel()]),
        lambda: np.zeros((), array.dtype),
        lambda: np.zeros(3, [("a", "i4"), ("b", "f8")]),
    ]
    if array.size and array.dtype.kind in "iuf":
        info = np.finfo(array.dtype) if array.dtype.kind == "f" else np.iinfo(array.dtype)
        one = array.copy()
        one.flat[rng.randrange(array.size)] = rng.choice((info.max, info.min, 0, 1))
        changes += [lambda: one] * 6
    try:
        return rng.choice(changes)()
    except (ValueError, TypeError):
        return array[:0] if array.ndim else array.ravel()[:0]


def lying(path: Path, rng: random.Random) -> bytes | None:
    """The file whole as a container, its contents changed; None where the format is not known here."""
    data = path.read_bytes()
    if path.suffix == ".json":
        return json.dumps(lying_json(json.loads(data), rng)).encode()
    if path.suffix == ".jsonl":
        rows = lying_json([json.loads(line) for line in data.splitlines()], rng)
        return "".join(json.dumps(row) + "\n" for row in (rows if isinstance(rows, list) else [rows])).encode()
    if path.suffix == ".toml":
        return _toml(data.decode(), rng).encode()
    if path.suffix == ".npy":
        return _saved(lambda f: np.save(f, lying_array(np.load(io.BytesIO(data)), rng)))
    if path.suffix == ".npz":
        with np.load(io.BytesIO(data)) as file:
            arrays = dict(file)
        name = rng.choice(sorted(arrays))
        arrays[name] = lying_array(arrays[name], rng)
        if rng.random() < 0.2:
            del arrays[name]
        return _saved(lambda f: np.savez(f, **arrays))
    if path.suffix == ".safetensors":
        return _safetensors(data, rng)
    if path.suffix == ".parquet":
        return _parquet(path, rng)
    if path.suffix in (".csv", ".tsv", ".txt"):
        return _delimited(data, b"," if path.suffix == ".csv" else b" ", rng)
    return None


def _saved(write: Callable[[Any], None]) -> bytes:
    stream = io.BytesIO()
    write(stream)
    return stream.getvalue()


def _toml(text: str, rng: random.Random) -> str:
    lines = text.splitlines()
    at = rng.randrange(len(lines))
    key = lines[at].split("=")[0].strip() or "x"
    values = ("nan", "-inf", "99999999999999999999", '"x"', "[1, 2]", "{a = 1}", "true", "1979-05-27", '"""', "0", "-1")
    lines[at] = rng.choice(
        (f"{key} = {rng.choice(values)}", "", f"{key}x = 1", f"[{key}]", lines[at] + "\n" + lines[at])
    )
    return "\n".join(lines)


def _safetensors(data: bytes, rng: random.Random) -> bytes:
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    meta = header.get("__metadata__", {})
    if "onelabel" in meta and rng.random() < 0.7:
        header["__metadata__"] = {**meta, "onelabel": json.dumps(lying_json(json.loads(meta["onelabel"]), rng))}
    else:
        header = lying_json(header, rng)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def _parquet(path: Path, rng: random.Random) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    table = parquet.read_table(path)
    meta = {k: v for k, v in (table.schema.metadata or {}).items() if k.startswith(b"onelabel")}
    texts = [key for key, value in meta.items() if value[:1] == b"{"]
    if texts and rng.random() < 0.5:
        key = rng.choice(texts)
        meta[key] = json.dumps(lying_json(json.loads(meta[key]), rng)).encode()
        table = table.replace_schema_metadata(meta)
    else:
        at = rng.randrange(len(table.column_names))
        name, values = table.column_names[at], table.column(at).to_pylist()
        kind = rng.randrange(6)
        if kind == 0:
            table = table.drop_columns([name])
        elif kind == 1:
            table = table.rename_columns([f"{n}x" if n == name else n for n in table.column_names])
        elif kind == 2:
            table = table.set_column(at, name, pa.array([None] * len(values), table.column(at).type))
        elif kind == 3:
            made = pa.array([str(value) for value in values])
            table = table.set_column(at, name, made)
        elif kind == 4:
            table = table.slice(0, rng.choice((0, 1)))
        elif values:
            strange = rng.choice((-1, 10**6, 2**31 - 1, 2**62, float("nan"), None, "x", "../x", [1]))
            values[rng.randrange(len(values))] = strange
            try:
                made = pa.array(values, table.column(at).type)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
                made = pa.array([str(value) for value in values])
            table = table.set_column(at, name, made)
    return _saved(lambda f: parquet.write_table(table, f))


def _delimited(data: bytes, between: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines()
    at = rng.randrange(len(lines))
    cells = lines[at].split(between)
    cells[rng.randrange(len(cells))] = rng.choice((*TOKENS, b"1", b"0", b"x" * 200_000))
    if rng.random() < 0.3:
        cells = cells[1:]
    return b"\n".join([*lines[:at], between.join(cells), *lines[at + 1 :]])
