"""What `onelabel recover` does, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from onelabel.recovery.answers import match_answers
from onelabel.recovery.audit import Plan
from onelabel.recovery.completion import AuditRows, Recovered, recover
from onelabel.recovery.export import export_recovered, refuse_format
from onelabel.recovery.folds import crossfit
from onelabel.recovery.inputs import Inputs, is_run, load_inputs, refuse_absent, role_scores
from onelabel.recovery.places import rows_by_name
from onelabel.recovery.summary import added, as_text, counted
from onelabel.system import clear_stale, refuse_existing
from onelabel.training.again import UNFINISHED, is_unfinished
from onelabel.training.carried import FILE, LEAST, calibrate_run, is_calibrated, more_rows, usable_rows

#: From so many pictures on what is expected of the labels added was nearly so on VOC (docs/recovery.md).
TRUSTED_ROWS = 4500


@dataclass(frozen=True)
class Wanted:
    """The command's options, in its order."""

    source: str
    out: Path | None
    data: str | None
    method: str | None
    folds: int
    k: float | None
    audit: Path | None
    answers: Path | None
    calibration: str
    precision: float | None
    preference: float
    floor: float
    top: int
    labels: Path | None
    errors: int
    duplicates: float | None
    export: tuple[str, ...]
    tuned: bool
    backbone: str | None
    weights: str | None
    size: int
    max_rows: int | None
    seed: int
    device: str | None
    root: str | None
    force: bool = False
    options: dict[str, Any] = field(default_factory=dict)  #: the loader's


def run_recovery(w: Wanted, echo: Callable[[str], Any]) -> Recovered:
    """Read, cross-fit, recover, report."""
    if (w.audit is None) != (w.answers is None):
        raise ValueError("an audit is its plan and its answers: give both --audit and --answers")
    exports = [_export(pair) for pair in w.export]
    target = w.out or (Path(w.source) if is_run(w.source) else Path()) / "recovered.parquet"
    refuse_absent(w.data if w.data is not None and is_run(w.source) else w.source)
    if is_run(w.source):
        clear_stale(w.source)
    if not w.force:
        beside = [target.with_suffix(end) for end in (".json", ".csv")] + ([w.labels] if w.labels is not None else [])
        refuse_existing(target, *beside, remedy="give another --out, or --force to overwrite it")
    refuse_existing(*(path for _, path in exports))
    inputs = load_inputs(
        w.source, data=w.data, tuned=w.tuned, backbone=w.backbone, weights=w.weights, size=w.size, device=w.device,
        root=w.root, loader=w.options,
    )  # fmt: skip
    for kind, _ in exports:
        refuse_format(kind, w.source, (inputs.examples or ["0"])[0], folder=bool(inputs.root))
    spec: Any = w.method or inputs.method or "em"
    options: dict[str, Any] = {"folds": w.folds, "k": w.k, "max_rows": w.max_rows, "seed": w.seed}
    fitted = crossfit(inputs.features, inputs.labels, spec=spec, device=w.device, **options)
    scores: Any = fitted if w.method is not None else role_scores(inputs, fitted)
    done = recover(
        None,
        inputs.labels,
        target,
        scores=scores,
        folds=w.folds,
        k=w.k,
        audit=_audit(w, inputs, echo),
        calibration=w.calibration,  # type: ignore[arg-type]
        precision=w.precision,
        preference=w.preference,
        floor=w.floor,
        top=w.top,
        examples=inputs.examples,
        root=inputs.root,
        seed=w.seed,
    )
    echo(as_text(done.summary))
    low, high = done.k_interval
    echo(
        f"k = {done.k:.2f} positives a picture (95% interval {low:.2f}–{high:.2f}); thresholds: {done.thresholds.rule}"
    )
    if done.k_open and w.audit is None:
        remedy = "audit some rows (onelabel audit plan), or give --k"
        echo(f"k is open: one label a picture leaves {low:.2f} to {high:.2f}; {remedy}")
    echo(str(whole := added(done.summary)))
    if whole.labels and w.audit is None and len(inputs.labels) < TRUSTED_ROWS:
        echo(
            "without an audit this may be too high where pictures are few or made small: where 90% were expected, "
            "67% were right of 300 VOC pictures, 75% of 1,000, 83% of 4,574; onelabel audit plan says what to check"
        )
    echo(f"intervals: {done.file.about['intervals_assume']}")
    if done.naming is not None:
        echo(str(done.naming))
    if done.contradictions:
        what = counted(done.contradictions, "observed label is", "observed labels are")
        echo(f"{what} contradicted by the audit, which is believed")
    echo(f"{target}: candidates of {len(inputs.labels):,} pictures; summary in {target.with_suffix('.csv').name}")
    if inputs.left_out:
        echo(
            f"left out: {inputs.left_out:,} validation pictures, which are not trained on; where the split was drawn, "
            "-o validation=0 recovers them too"
        )
    if inputs.run is not None:
        _carry(inputs, done.k if w.audit is not None else w.k, echo)
    _extras(w, inputs, done, exports, echo)
    return done


def _carry(inputs: Inputs, k: float | None, echo: Callable[[str], Any]) -> None:
    """Calibrate the run's own classifier, for `predict` and `export`, where it is not, or anew where k is known."""
    held = inputs.held
    if k is None and is_calibrated(inputs.run):
        return
    found = None if held is None else calibrate_run(inputs.run, held.scores, held.observed, true=held.true, k=k)
    if found is None and is_unfinished(inputs.run.path):
        echo(f"{inputs.run.path}: {UNFINISHED}")
        return
    if found is None:
        rows = 0 if held is None else usable_rows(held.observed, held.true)
        more = more_rows(len(inputs.labels) + inputs.left_out)
        echo(
            f"{inputs.run.path}: {rows} validation pictures with a score and one label or all, a calibration needs "
            f"{LEAST}: predict will give its sigmoids, uncalibrated; train with {more}"
        )
        return
    learnt = f"learnt from {found.rows:,} rows the run did not train on" + (f", at k = {k:.2f}" if k else "")
    echo(f"{inputs.run.path / FILE}: calibrates predict and export, {learnt}")


def outcome(done: Recovered) -> dict[str, Any]:
    """What was found, for machines."""
    low, high = done.k_interval
    return {
        "file": str(done.file.path),
        "k": done.k,
        "k_low": low,
        "k_high": high,
        "k_open": done.k_open,
        "thresholds": done.thresholds.rule,
        "added": asdict(added(done.summary)),
        "contradictions": done.contradictions,
        "classes": [asdict(each) for each in done.summary],
    }


def _extras(w: Wanted, inputs: Inputs, done: Recovered, exports: list[tuple[str, Path]], echo: Any) -> None:
    names = inputs.labels.class_names or ()
    if w.labels is not None:
        done.labels().save(w.labels)
        echo(f"labels: {w.labels}")
    for kind, path in exports:
        echo(f"{kind}: {export_recovered(done.file, kind, path)}")
    if w.errors:
        from onelabel.recovery.errors import label_errors

        for e in label_errors(done.file, most=w.errors):
            other = f"{e.suggestion} ({e.suggestion_probability:.2f})"
            echo(f"looks wrong: {e.example} {e.label} ({e.probability:.2f}); {other}?")
    if w.duplicates is not None:
        from onelabel.recovery.duplicates import near_duplicates

        for group in near_duplicates(inputs.features, inputs.labels, cosine=w.duplicates):
            rows = ", ".join(inputs.examples[i] if inputs.examples else str(i) for i in group.rows[:6])
            echo(f"near-duplicates with labels {', '.join(names[c] for c in group.classes)}: {rows}")


def _audit(w: Wanted, inputs: Inputs, echo: Callable[[str], Any]) -> AuditRows | None:
    if w.audit is None or w.answers is None:
        return None
    plan = Plan.load(w.audit)
    names = inputs.labels.class_names or tuple(map(str, range(inputs.labels.num_classes)))
    found, rows = match_answers(w.answers, plan.rows, plan.examples, names), plan.rows
    for note in found.notes():
        echo(f"{w.answers}: {note}")
    if inputs.examples is not None:  # since the audit was planned pictures may have come or gone
        rows = rows_by_name(plan.rows, plan.examples, enumerate(inputs.examples))
    here = rows >= 0
    if not here.any():
        raise ValueError(f"{w.audit}: none of its pictures is in {w.source}; give the data that was audited")
    if not here.all():
        echo(f"{w.audit}: {(~here).sum()} of its {len(rows)} pictures are not in {w.source} and are left out")
    return AuditRows(rows[here], found.values[here], plan.inclusion[here])


def _export(pair: str) -> tuple[str, Path]:
    kind, equals, path = pair.partition("=")
    if not equals or not path:
        raise ValueError(f"--export: {pair!r}, expected FORMAT=PATH such as coco=labels.json")
    refuse_format(kind)
    return kind, Path(path)
