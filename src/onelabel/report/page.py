"""`write_report`: runs in, one self-contained page out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onelabel import __version__
from onelabel.report import numbers, pictures, style
from onelabel.report.choice import LIKELIHOOD, choose, main_run, names
from onelabel.report.examples import drawn, examples
from onelabel.report.intervals import repetitions
from onelabel.report.results import holds_results, result_tables
from onelabel.report.runs import RunView, baseline, read_runs, splits_of
from onelabel.report.sections import figure_sections, result_sections
from onelabel.system import atomic_write, need, progress
from onelabel.training.recording import PartLabels


def write_report(
    runs: Sequence[str | Path],
    out: str | Path = "report.html",
    *,
    recovered: str | Path | None = None,
    leaderboard: str | Path | None = None,
    bench: str | Path | None = None,
    data: Any = None,
    title: str | None = None,
    note: str | None = None,
) -> Path:
    """Write one HTML file about runs on the same classes: no network, dark and light, prints well.

    Args:
        runs: run folders; those of AN and of full labels serve as yardsticks. A folder of results counts as `bench`.
        out: the file, or a folder to put report.html into.
        recovered: the Parquet file of `onelabel recover`. leaderboard: the CSV of `onelabel compare`.
        bench: a folder of benchmark results: a table of each dataset and mode, and the sweeps drawn.
        data: the `Splits` the runs were trained on; else what their data.json names, where it is still there.
        title, note: the page's title, and a sentence about what was run.
    """
    target = Path(out)
    target = target / "report.html" if target.is_dir() or target.suffix == "" else target
    given = None
    if data is not None:
        given = {name: PartLabels(part.observed.to_dense(), part.true) for name, part in data.parts.items()}
    benches = [path for path in runs if holds_results(path)] + ([] if bench is None else [bench])
    folders = [path for path in runs if path not in benches]
    found = read_runs(folders, given) if folders else []
    results: list[Any] = []
    if benches:
        from onelabel.bench.results import read

        results = [row for place in benches for row in read(place)]
    if not found and not results:
        raise ValueError("runs: none given, and no benchmark results; give run folders, or bench=")
    context = make_context(found, recovered, leaderboard, results, data, title, note)
    environment = need("jinja2", "report").Environment(
        loader=need("jinja2", "report").PackageLoader("onelabel.report"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=need("jinja2", "report").StrictUndefined,
    )  # fmt: skip
    environment.filters |= {"number": number, "signed": signed, "chance": chance}
    atomic_write(target, environment.get_template("report.html").render(context))
    return target


def make_context(
    runs: list[RunView], recovered: Any, leaderboard: Any, results: list[Any], data: Any, title: Any, note: Any
) -> dict[str, Any]:
    """Everything the template prints."""
    file = None
    if recovered is not None:
        from onelabel.recovery.table import RecoveredFile

        file = RecoveredFile.open(recovered)
    context: dict[str, Any] = {
        "title": title or "onelabel report", "note": note, "version": __version__, "runs": runs,
        "made": time.strftime("%Y-%m-%d %H:%M"), "style": style, "leaderboard": numbers.leaderboard(leaderboard),
        "facts": [], "headline": [], "choice": "", "likelihood": "", "drawn": "",
        "classes": [], "examples": [], "missing": [], "steps": [], "settings": [],
        "recovered": file, "main": None, "baseline": None, "repetitions": 0, "tables": result_tables(results),
    }  # fmt: skip
    with progress("report", 4) as advance:
        sections = result_sections(results)
        if runs:
            choice = choose(runs)
            best = choice.run
            splits = data if data is not None else splits_of(best)
            book = pictures.Pictures(splits, None if file is None else file.folder())
            rows = numbers.class_rows(runs, file)
            context |= {
                "title": title or f"{_data_name(best, splits)}: {len(runs)} run{'s' if len(runs) > 1 else ''}",
                "main": best, "baseline": baseline(runs), "facts": facts(runs, splits, file),
                "headline": numbers.headline(runs), "classes": rows,
                "choice": choice.told,
                "likelihood": LIKELIHOOD if any(run.validated("likelihood") is not None for run in runs) else "",
            }  # fmt: skip
            advance(1)
            sections = figure_sections(runs) + sections
            advance(1)
            context["examples"] = examples(runs, book)
            context["drawn"] = drawn(context["examples"])
            context["missing"] = missing(best, file, book)
            advance(1)
            context["steps"] = numbers.next_steps(runs, rows, file, _source(best))
            context["settings"] = [(run.label, run.look.colour, run.config.to_toml()) for run in runs]
            true = best.true("test")
            context["repetitions"] = 0 if true is None else repetitions(*true.shape)
        context["sections"] = sections
        advance(1)
    return context


def facts(runs: Sequence[RunView], splits: Any, file: Any) -> list[tuple[str, str]]:
    """What was trained on what."""
    best = main_run(runs)
    found = [("Data", _data_name(best, splits)), ("Classes", f"{len(best.class_names):,}")]
    sizes = ", ".join(f"{len(labels.observed):,} {part}" for part, labels in best.labels.items())
    if sizes:
        found.append(("Examples", sizes))
    train = best.labels.get("train")
    if train is not None:
        seen = (train.observed > 0).sum() / max(len(train.observed), 1)
        told = f"{seen:.2f} positive observed an example"
        if train.true is not None:
            told += f"; {train.true.sum() / max(len(train.true), 1):.2f} in truth"
        found.append(("Labels", told))
    if file is not None and "k" in file.about:
        low, high = file.about["k_interval"]
        found.append(("Recovered", f"{file.about['k']:.2f} positives an example (95% {low:.2f} to {high:.2f})"))
    networks: dict[str, list[str]] = {}
    for run in runs:
        networks.setdefault(network(run, splits), []).append(run.label)
    for told, labels in networks.items():
        found.append(("Network" if len(networks) == 1 else f"Network of {names(labels)}", told))
    where = best.environment
    if where:
        commit = (where.get("commit") or "")[:7]
        versions = where.get("versions", {})
        found.append(
            ("Made on", f"{where.get('device', '–')}, torch {versions.get('torch', '–')}, commit {commit or '–'}")
        )
    return found


def network(run: RunView, splits: Any) -> str:
    """What a run trained, and how; where its weights are gone, what it saw is what `splits` hold."""
    config = run.config
    unknown = "none" if config.mode == "linear" and not hasattr(getattr(splits, "train", None), "source") else ""
    backbone = run.header.get("backbone", unknown) or config.backbone
    what = (
        f"a head on features, {config.mode}" if backbone == "none" else f"{backbone}, {config.mode}, {config.size} px"
    )
    return f"{what}, {config.epochs} epoch{'' if config.epochs == 1 else 's'}, batch {config.batch_size}"


def missing(best: RunView, file: Any, book: pictures.Pictures) -> list[dict[str, Any]]:
    """The most confident missing labels, with their pictures."""
    found = numbers.missing_labels(best, file)
    for item in found:
        if item["example"] is None:
            item["example"] = book.name("train", item["row"])
            picture = book.read("train", item["row"])
        else:
            picture = book.find(item["example"])
            part, row = book.rows.get(item["example"], ("", -1))
            known = best.true(part) if part else None
            if known is not None and row < len(known):
                item["true"] = bool(known[row, best.class_names.index(item["class"])])
        item["picture"] = pictures.data_uri(picture, 144)
    return found


def number(value: Any, places: int = 1) -> str:
    """A number for people: thousands apart, a dash for nothing."""
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "–"
    return (f"{value:,}" if isinstance(value, int) else f"{value:,.{places}f}").replace("-", "−")


def chance(p: float) -> str:
    """A probability; nobody is told that something is certain."""
    return "<0.01" if p < 0.005 else ">0.99" if p >= 0.995 else f"{p:.2f}"


def signed(value: Any, places: int = 1) -> str:
    """The same with its sign."""
    if value is None or not np.isfinite(value):
        return "–"
    return f"{value:+,.{places}f}".replace("-", "−")


def _data_name(run: RunView, splits: Any) -> str:
    if splits is not None:
        return str(splits.name)
    return _source(run) or run.path.name


def _source(run: RunView) -> str | None:
    from onelabel.training.again import Origin

    try:
        return Origin.load(run.path).source
    except (OSError, ValueError, KeyError):
        return None
