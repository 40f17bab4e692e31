"""Every file the program reads, damaged: a right answer or one line of ValueError or OSError, soon, in little memory.

ONELABEL_FUZZ=1000 gives every reader that many damaged files of each kind (`make fuzz`); tests keep to a few.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fuzz_benchmarks  # noqa: F401 - they enter themselves
import fuzz_outer  # noqa: F401
import fuzz_runs  # noqa: F401
import pytest
from fuzz_damage import damaged, lying
from fuzz_readers import READERS, Reader

from onelabel.training import TrainingError

CASES = int(os.environ.get("ONELABEL_FUZZ", "15"))
FIRST = int(os.environ.get("ONELABEL_FUZZ_SEED", "0"))
SECONDS, MEGABYTES = 20, 400


class Hang(BaseException):
    """Took too long; no `except Exception` swallows it."""


@contextmanager
def soon() -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def complaint(reader: Reader, folder: Path) -> str | None:
    """What is wrong with the way this input is read; None where it is a right answer or a right refusal."""
    try:
        with soon(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(folder)
    except (ValueError, OSError, TrainingError) as error:
        if "\n" in str(error) or not str(error):
            return f"not one line: {type(error).__name__} {str(error)!r:.300}"
        return None
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
            raise
        where = traceback.extract_tb(error.__traceback__)
        own = [f"{Path(f.filename).name}:{f.lineno}" for f in where if "onelabel" in f.filename]
        return f"{type(error).__name__} {str(error)!r:.200} at {' '.join(own[-3:])}"
    return None


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """reader → a folder with its good input, made once per kind of input."""
    made: dict[Any, Path] = {}

    def find(reader: Reader) -> Path:
        if reader.make not in made:
            made[reader.make] = tmp_path_factory.mktemp("good")
            reader.make(made[reader.make])
        return made[reader.make]

    return find


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_refused_in_one_line_or_read_right(
    name: str, good: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, source = READERS[name], good(READERS[name])
    monkeypatch.chdir(tmp_path)
    work = tmp_path / "work"
    shutil.copytree(source, work, symlinks=True)
    assert complaint(reader, work) is None, "the undamaged input is refused"
    reader.read(work)  # and no error hides in that
    shutil.rmtree(work)
    victims = sorted({path for pattern in reader.victims for path in source.glob(pattern) if path.is_file()})
    assert victims
    before, found = peak(), {}
    for case in range(2 * CASES):
        rng = random.Random(f"{name} {FIRST} {case}")
        victim = rng.choice(victims)
        content = lying(victim, rng) if case % 2 else None
        if content is None:
            content = damaged(victim.read_bytes(), rng)
        shutil.copytree(source, work, symlinks=True)
        target = work / victim.relative_to(source)
        target.unlink()
        target.write_bytes(content)
        trouble = complaint(reader, work)
        if trouble:
            found.setdefault(trouble, f"case {case}, {victim.name}, {content[:60]!r}")
        assert not Path("pickle-was-executed").exists(), f"case {case}: a pickle was executed"
        assert peak() - before < MEGABYTES, f"case {case}: {peak() - before} MB"
        shutil.rmtree(work)
    assert not found, "\n".join(f"{trouble}  [{where}]" for trouble, where in found.items())
