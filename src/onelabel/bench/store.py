"""Where results and claims live: a folder that all workers see, or a database through Optuna's storage.

A claim has a generation. The first worker makes generation 0 of a run, which only one can; it then shows signs of life
(beats). Where those stop for longer than the lease, whoever makes the next generation goes on: again only one can.
Nothing is ever deleted to take a run over, so no two workers can believe the same claim theirs.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
import uuid
from pathlib import Path
from typing import Any, Protocol

from onelabel.bench.identity import identity, is_dead
from onelabel.bench.results import Found, Row, as_dict, find, from_dict, no_results, write
from onelabel.system import need


class Store(Protocol):
    """What claims and results need of a place."""

    def create(self, run_id: str, generation: int) -> bool:
        """Make a claim that did not exist; False where another worker has made it."""
        ...

    def latest(self, run_id: str) -> int:
        """The highest generation there is; −1 for none."""
        ...

    def beat(self, run_id: str, generation: int) -> None: ...

    def silence(self, run_id: str, generation: int) -> float:
        """Seconds since the last sign of life; infinite where the claimant is known to be dead."""
        ...

    def clear(self, run_id: str) -> None:
        """Forget the claims of a run that has a result."""
        ...

    def put(self, row: Row) -> None: ...

    def row(self, run_id: str) -> Row | None: ...

    def find(self) -> Found: ...


class Folder:
    """Results as ``<run_id>.parquet`` and claims as ``claims/<run_id>.<generation>`` in one folder, local or shared."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.claims = self.path / "claims"
        self.claims.mkdir(parents=True, exist_ok=True)
        self.me = identity()

    def _file(self, run_id: str, generation: int) -> Path:
        return self.claims / f"{run_id}.{generation}"

    def create(self, run_id: str, generation: int) -> bool:
        try:
            handle = os.open(self._file(run_id, generation), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(handle, "w") as file:
            json.dump(self.me, file)
        return True

    def latest(self, run_id: str) -> int:
        generation = -1
        while self._file(run_id, generation + 1).exists():
            generation += 1
        return generation

    def beat(self, run_id: str, generation: int) -> None:
        with contextlib.suppress(OSError):
            os.utime(self._file(run_id, generation))

    def silence(self, run_id: str, generation: int) -> float:
        file = self._file(run_id, generation)
        try:
            beaten = file.stat().st_mtime
            owner = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return 0.0  # cleared this moment: the run has a result
        except (OSError, ValueError):  # made and not yet written
            owner = {}
        if owner.get("machine") == self.me["machine"] and is_dead(owner):
            return float("inf")
        return max(0.0, self._now() - beaten)

    def _now(self) -> float:
        """The clock of the disk, which is the one that stamps beats; workers' own may differ."""
        probe = self.claims / f".now-{uuid.uuid4().hex}"  # of this look alone: threads and machines look at once
        try:
            probe.touch()
            return probe.stat().st_mtime
        finally:
            probe.unlink(missing_ok=True)

    def clear(self, run_id: str) -> None:
        for generation in range(self.latest(run_id), -1, -1):
            self._file(run_id, generation).unlink(missing_ok=True)

    def put(self, row: Row) -> None:
        write(self.path, row)

    def row(self, run_id: str) -> Row | None:
        file = self.path / f"{run_id}.parquet"
        rows = find(file).rows if file.is_file() else []
        return rows[0] if rows else None

    def find(self) -> Found:
        return find(self.path)


class Database:
    """Results and claims in a database of Optuna's storage (``sqlite:///bench.db``, ``postgresql://…``).

    A claim is a study of its own, whose name the database keeps unique; beats and the row are its attributes. Workers'
    clocks must agree to within the lease.
    """

    def __init__(self, url: str) -> None:
        self.optuna = need("optuna", "bench")
        self.optuna.logging.set_verbosity(self.optuna.logging.ERROR)
        self.storage = self._open(url)
        self.me = identity()

    def _open(self, url: str, tries: int = 6) -> Any:
        """Optuna's storage; workers that start together race to make its tables, and the loser tries again."""
        errors = need("sqlalchemy.exc", "bench")
        for left in range(tries - 1, -1, -1):
            try:
                return self.optuna.storages.get_storage(url)
            except errors.ArgumentError:  # the URL may hold a password: only its kind is repeated
                kind = url.partition("://")[0]
                raise ValueError(f"{kind}://…: no such kind of database; expected such as sqlite:///bench.db") from None
            except errors.DBAPIError as error:
                if not left:
                    raise OSError(f"{url.split('://')[0]} database: {str(error).splitlines()[0]}") from None
                time.sleep(random.uniform(0.2, 1.5))
        return None

    def _name(self, run_id: str, generation: int | str) -> str:
        return f"onelabel-bench/{run_id}/{generation}"

    def _study(self, run_id: str, generation: int | str) -> int | None:
        try:
            found: int = self.storage.get_study_id_from_name(self._name(run_id, generation))
        except KeyError:
            return None
        return found

    def _create(self, run_id: str, generation: int | str) -> bool:
        direction = self.optuna.study.StudyDirection.MAXIMIZE
        try:
            self.storage.create_new_study([direction], self._name(run_id, generation))
        except self.optuna.exceptions.DuplicatedStudyError:
            return False
        return True

    def create(self, run_id: str, generation: int) -> bool:
        if not self._create(run_id, generation):
            return False
        self.storage.set_study_user_attr(self._study(run_id, generation), "owner", self.me)
        self.beat(run_id, generation)
        return True

    def latest(self, run_id: str) -> int:
        generation = -1
        while self._study(run_id, generation + 1) is not None:
            generation += 1
        return generation

    def beat(self, run_id: str, generation: int) -> None:
        self._note(run_id, generation, "beat")

    def _note(self, run_id: str, generation: int, what: str) -> None:
        study = self._study(run_id, generation)
        if study is not None:
            with contextlib.suppress(KeyError):  # forgotten meanwhile
                self.storage.set_study_user_attr(study, what, time.time())

    def silence(self, run_id: str, generation: int) -> float:
        study = self._study(run_id, generation)
        try:
            known = {} if study is None else self.storage.get_study_user_attrs(study)
        except KeyError:
            study = None
        if study is None:
            return 0.0  # cleared this moment: the run has a result
        owner = known.get("owner", {})
        if owner.get("machine") == self.me["machine"] and is_dead(owner):
            return float("inf")
        since = known.get("beat", known.get("seen"))
        if since is None:  # made and not yet signed, or its maker died in between: silent from the first look on
            self._note(run_id, generation, "seen")
        return 0.0 if since is None else max(0.0, time.time() - since)

    def clear(self, run_id: str) -> None:
        for generation in range(self.latest(run_id), -1, -1):
            study = self._study(run_id, generation)
            if study is not None:
                with contextlib.suppress(KeyError):
                    self.storage.delete_study(study)

    def put(self, row: Row) -> None:
        self._create(row.run_id, "row")
        self.storage.set_study_user_attr(self._study(row.run_id, "row"), "row", as_dict(row))

    def row(self, run_id: str) -> Row | None:
        study = self._study(run_id, "row")
        values = None if study is None else self.storage.get_study_user_attrs(study).get("row")
        return None if values is None else from_dict(values)

    def find(self) -> Found:
        rows, unreadable = [], {}
        for study in self.storage.get_all_studies():
            prefix, _, rest = study.study_name.partition("/")
            if prefix != "onelabel-bench" or not rest.endswith("/row"):
                continue
            try:
                rows.append(from_dict(self.storage.get_study_user_attrs(study._study_id)["row"]))
            except (KeyError, TypeError, ValueError) as error:
                unreadable[rest] = str(error)
        return Found(rows, unreadable)


def open_store(place: str | Path | Store) -> Store:
    """A folder, or a database where the text is a URL."""
    if isinstance(place, (str, Path)):
        return Database(str(place)) if "://" in str(place) else Folder(place)
    return place


def look(place: str | Path) -> Found:
    """What a place holds, which reading does not make: FileNotFoundError where there is none."""
    if "://" not in str(place):
        return find(place)
    kind = str(place).partition(":")[0]
    if kind.partition("+")[0] == "sqlite":
        file = need("sqlalchemy.engine", "bench").make_url(str(place)).database
        if file and not file.startswith("file:") and not Path(file).is_file():
            raise FileNotFoundError(no_results(str(place)))
    return open_store(place).find()
