"""Where a run's data came from, so that it can be resumed by its name, and trained again with better labels."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from onelabel.system import check_schema, read_json, reading
from onelabel.training.files import best_weights, write_json

FILE, SCHEMA = "data.json", 1


@dataclass(frozen=True)
class Origin:
    """What `load_dataset` was given: the source, its root and the loader's options.

    And what a run that is resumed needs beside them: labels that were put in the data's place, and whether the method
    was still to be chosen.
    """

    source: str
    root: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    labels: str | None = None
    auto: bool = False

    def save(self, run: Path, *, whole: bool = True) -> None:
        """Write it into a run folder; a source on disk is kept as an absolute path.

        `whole`: the run had every row that was loaded. Where it left out pictures that could not be read, whoever loads
        the data again must look at them too, so that rows and scores belong together.
        """
        path = Path(self.source).expanduser()
        found = asdict(self) | ({"source": str(path.resolve())} if path.exists() else {})
        for name in ("root", "labels"):
            if (given := getattr(self, name)) is not None:
                found[name] = str(Path(given).expanduser().resolve())
        if not whole:
            found["options"] = {**self.options, "verify": "decode"}
        run.mkdir(parents=True, exist_ok=True)
        write_json(run / FILE, {"schema_version": SCHEMA, **found})

    @classmethod
    def load(cls, run: str | Path) -> Origin:
        """Read it from a run folder."""
        path = Path(run) / FILE
        if not path.is_file():
            best_weights(path.parent)  # where it has none, that is the remedy to name
            raise FileNotFoundError(f"{run}: does not say what data it was trained on ({FILE} is missing); give DATA")
        found = read_json(path)
        with reading(path, "the origin of a run", remedy="give DATA"):
            check_schema(found.get("schema_version", 1), SCHEMA, path)
            source, root, labels = found["source"], found.get("root"), found.get("labels")
            if not isinstance(source, str) or not isinstance(root, str | None) or not isinstance(labels, str | None):
                raise TypeError(f"source {source!r:.40}, root {root!r:.40}, labels {labels!r:.40}")
            return cls(source, root, dict(found.get("options", {})), labels, bool(found.get("auto", False)))


#: What is said of a run that `is_unfinished`, after its name.
UNFINISHED = "not finished, so its best epoch so far counts, uncalibrated; onelabel train RUN --resume goes on with it"


def is_run(path: str | Path) -> bool:
    """Whether a path is a run folder that can be trained again."""
    return (Path(path) / FILE).is_file() and (Path(path) / "config.toml").is_file()


def is_unfinished(path: str | Path) -> bool:
    """Whether a run folder holds a training that was begun and did not end."""
    return (Path(path) / "config.toml").is_file() and not (Path(path) / "result.json").is_file()


def next_folder(run: str | Path) -> Path:
    """RUN-again, RUN-again-2, …: the first that does not exist."""
    base = Path(f"{str(run).rstrip('/')}-again")
    number, found = 2, base
    while found.exists():
        found, number = base.with_name(f"{base.name}-{number}"), number + 1
    return found
