"""The report's numbers: headline, class by class, what is missing, what to do next."""

from __future__ import annotations

import csv
import heapq
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onelabel.metrics import label_recovery_ap
from onelabel.report.choice import choose, main_run, names
from onelabel.report.intervals import bootstrap_map, interval, repetitions
from onelabel.report.runs import PHASES, RunView, baseline

#: By criterion, what another seed may turn round: points of mAP; good methods' likelihoods are 0.06 and more apart.
CLOSE = {"mAP": (0.5, "points"), "likelihood": (0.02, "of log-likelihood")}
Recovered = Any  # recovery.table.RecoveredFile


def headline(runs: Sequence[RunView], *, seed: int = 0) -> list[dict[str, Any]]:
    """A row per run: mAP in percent with 95% intervals over examples, and paired differences to AN."""
    choice = choose(runs)
    reference = baseline(runs)
    samples = {id(run): _samples(run, seed) for run in runs}
    rows = []
    for run in runs:
        own = samples[id(run)]
        row: dict[str, Any] = {
            "run": run,
            "best": choice.bold and run is choice.run,
            **best_epoch(run),
            "validation": run.validated("mAP"),
            "likelihood": run.validated("likelihood"),
            "test": _mean_ap(run),
            "interval": None,
            "gain": None,
            "recovery": recovery_ap(run),
            "speed": _speed(run),
        }
        if own is not None and row["test"] is not None:
            row["interval"] = interval(row["test"], 100 * own)
        other = None if reference is None else samples[id(reference)]
        if own is not None and other is not None and run is not reference and len(own) == len(other):
            assert reference is not None
            before = _mean_ap(reference)
            if before is not None and row["test"] is not None:
                row["gain"] = interval(row["test"] - before, 100 * (own - other))
        rows.append(row)
    return rows


def best_epoch(run: RunView) -> dict[str, Any]:
    """The best epoch, from 1: in its phase, which is named where there are several, and its place among all."""
    at, several = run.best_at, len({row.get("phase") for row in run.history}) > 1
    phase = run.history[at].get("phase", "") if several and at is not None else None
    return {
        "epoch": None if "best_epoch" not in run.result else run.result["best_epoch"] + 1,
        "phase": PHASES.get(phase, phase) if phase else None,
        "place": None if at is None else at + 1,
        "epochs": len(run.history),
    }


def _samples(run: RunView, seed: int) -> Any:
    scores, true = run.scores("test"), run.true("test")
    if scores is None or true is None or len(true) < 2:
        return None
    return bootstrap_map(np.asarray(scores), true, times=repetitions(*true.shape), seed=seed)


def _mean_ap(run: RunView) -> float | None:
    """Test mAP of the classes with positives, percent; what the run says where scores are gone."""
    if run.test_ap is None:
        return run.result.get("test_mAP")
    some = run.test_ap[~np.isnan(run.test_ap)]
    return 100 * float(some.mean()) if len(some) else None


def recovery_ap(run: RunView) -> float | None:
    """mAP of the training scores against the true labels of the entries that were unknown, percent."""
    scores, true = run.scores("train"), run.true("train")
    if scores is None or true is None or run.full:
        return None
    z = run.labels["train"].observed
    value = float(label_recovery_ap(np.asarray(scores), true, z, entries="unknown", empty="skip"))
    return 100 * value if math.isfinite(value) else None


def _speed(run: RunView) -> float | None:
    """Pictures a second, the median over the epochs of the last phase."""
    last = run.history[-1].get("phase") if run.history else None
    epochs = sum(row.get("phase") == last for row in run.history)
    values = run.result.get("images_per_second", [])[-epochs:]
    return float(np.median(values)) if values else None


def class_rows(runs: Sequence[RunView], recovered: Recovered | None) -> list[dict[str, Any]]:
    """A row per class: AP, gain over AN, positives, recovered, threshold."""
    best, reference = main_run(runs), baseline(runs)
    told = {} if recovered is None else {row["name"]: row for row in recovered.about.get("classes", [])}
    limits = best.thresholds
    labels = best.labels.get("train")
    rows = []
    for c, name in enumerate(best.class_names):
        about = told.get(name, {})
        ap = None if best.test_ap is None else best.test_ap[c]
        row: dict[str, Any] = {
            "name": name,
            "ap": _percent(ap),
            "gain": None,
            "observed": None if labels is None else int((labels.observed[:, c] > 0).sum()),
            "true": None if labels is None or labels.true is None else int(labels.true[:, c].sum()),
            "missing": about.get("missing"),
            "recovered": about.get("called"),
            "threshold": about.get("threshold", float(limits[c])),
        }
        if reference is not None and reference is not best and reference.test_ap is not None and ap is not None:
            row["gain"] = _percent(ap - reference.test_ap[c])
        rows.append(row)
    return rows


def _percent(value: Any) -> float | None:
    return None if value is None or math.isnan(value) else 100 * float(value)


def missing_labels(best: RunView, recovered: Recovered | None, most: int = 24) -> list[dict[str, Any]]:
    """The unknown entries most likely to be positive, at most three of a class, likeliest first."""
    true = best.true("train")
    found: list[dict[str, Any]] = []
    if recovered is not None:
        best_of: dict[int, list[tuple[float, int, str]]] = {}
        limits = np.minimum(recovered.thresholds, 0.5)
        for batch in recovered.batches():
            likely = batch["probability"] >= limits[batch["class_index"]]
            ask = np.flatnonzero((batch["observed"] == 0) & likely)
            for i in ask:
                kept = best_of.setdefault(int(batch["class_index"][i]), [])
                item = (float(batch["probability"][i]), -int(batch["row"][i]), batch["example"][i])
                heapq.heappush(kept, item) if len(kept) < 3 else heapq.heappushpop(kept, item)
        found = [
            {"class": recovered.class_names[c], "p": p, "row": -row, "example": name, "true": None}
            for c, items in best_of.items()
            for p, row, name in items
        ]
    else:
        scores, labels = best.scores("train"), best.labels.get("train")
        if scores is not None and labels is not None:
            unknown = np.where(labels.observed == 0, np.asarray(scores), -1.0)
            for c, name in enumerate(best.class_names):
                for row in np.argsort(-unknown[:, c], kind="stable")[:3]:
                    if unknown[row, c] >= 0.5:
                        known = None if true is None else bool(true[row, c])
                        p = float(unknown[row, c])
                        found.append({"class": name, "p": p, "row": int(row), "example": None, "true": known})
    return sorted(found, key=lambda f: (-f["p"], f["row"]))[:most]


def leaderboard(path: Path | None, most: int = 40) -> dict[str, Any] | None:
    """The CSV of `onelabel compare`: its columns, its first rows and how many there are."""
    if path is None:
        return None
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no leaderboard there; onelabel compare DATA --out writes one")
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    return {"columns": list(reader.fieldnames or []), "rows": rows[:most], "total": len(rows)}


def next_steps(
    runs: Sequence[RunView], rows: Sequence[dict[str, Any]], recovered: Recovered | None, source: str | None
) -> list[dict[str, str]]:
    """What to do with this, most useful first: a sentence and, where there is one, a command."""
    choice = choose(runs)
    best = choice.run
    steps = []

    def step(text: str, *command: Any) -> None:
        steps.append({"text": text, "command": shlex.join(map(str, command)) if command else ""})

    for run in runs:
        if not run.result:
            step(f"{run.label} is not finished: go on with it.", "onelabel", "train", run.path, "--resume")
    if len(runs) == 1 and not best.full:
        step("Compare it with the other methods, all at once, as probes.", "onelabel", "compare", source or "DATA",
             *best.network)  # fmt: skip
    again = ("onelabel", "train", source or "DATA", "--recipe", best.path / "config.toml")
    if choice.by is not None:
        margin, unit = CLOSE[choice.by]
        values = [(r.label, r.validated(choice.by)) for r in choice.among if r is not best]
        lead = best.validated(choice.by)
        close = [label for label, v in values if v is not None and lead is not None and lead - v < margin]
        if close:
            step(f"On validation {best.label} leads {names(close)} by less than {margin:g} {unit}: repeat it with "
                 "another seed before you choose.", *again, "--seed", best.config.seed + 1)  # fmt: skip
    last = len(best.history)
    if last > 1 and best.result.get("best_epoch") == (best.config.epochs or last) - 1 > 0 and not best.full:
        epochs = best.config.epochs or last
        step(f"The last of {epochs} epochs was the best one: more may be better still.", *again, "--epochs", 2 * epochs)
    never = [row["name"] for row in rows if row["observed"] == 0]
    if never:
        more = f" and {len(never) - 5} more" if len(never) > 5 else ""
        step(
            f"Never observed, so nothing was learnt of them: {', '.join(never[:5])}{more}. Name a few examples of each."
        )
    weak = sorted((r for r in rows if r["ap"] is not None), key=lambda r: r["ap"])[:3]
    if len(rows) > 4 and weak and weak[0]["ap"] < 60:
        seen = ["" if r["observed"] is None else f", {r['observed']} observed" for r in weak]
        told = [f"{r['name']} (AP {r['ap']:.0f}{more})" for r, more in zip(weak, seen, strict=True)]
        step(f"Weakest classes: {', '.join(told)}. Look at their examples, and name more of them.")
    lost = sorted((r for r in rows if r["gain"] is not None and r["gain"] < -1), key=lambda r: r["gain"])
    if lost:
        told = [f"{r['name']} (−{-r['gain']:.1f})" for r in lost[:3]]
        step(f"Worse than AN on {len(lost)} of {len(rows)} classes, most on {', '.join(told)}: what it takes for "
             "missing labels there may be wrong. Check those first.")  # fmt: skip
    if recovered is None:
        if not best.full:
            step("Give the missing labels back, with probabilities.", "onelabel", "recover", best.path, "--data",
                 source or "DATA")  # fmt: skip
    else:
        if not recovered.about.get("audited_rows"):
            step("Check a small sample by hand, so that the recovered labels' quality is known.",
                 "onelabel", "audit", "plan", recovered.path, "--minutes", "50")  # fmt: skip
        step("Confirm or reject the suggestions in the browser.", "onelabel", "review", recovered.path)
        answers = recovered.path.with_suffix(".review.db")
        step("Train once more with the answers.", "onelabel", "train", best.path, "--labels", answers)
    step("Label new pictures with it.", "onelabel", "predict", best.path, "PICTURES")
    return steps
