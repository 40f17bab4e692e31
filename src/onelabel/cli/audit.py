"""`onelabel audit`: which pictures to check, and what the answers say."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from onelabel.cli.options import JsonFlag, emit

app = typer.Typer(no_args_is_help=True, help="Plan an audit, and turn its answers into estimates.")


@app.command()
def plan(
    recovered: Annotated[
        Path, typer.Argument(metavar="RECOVERED", help="A recovered.parquet, or a run that holds one.")
    ],
    out: Annotated[Path, typer.Option(help="Where to write the plan.")] = Path("audit.parquet"),
    rows: Annotated[int | None, typer.Option(help="Pictures to check.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Or: minutes somebody has.")] = None,
    seconds_per_row: Annotated[float, typer.Option(help="How long one picture takes.")] = 15.0,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Draw the pictures whose complete checking tells most.

    Examples: onelabel audit plan recovered.parquet --minutes 50;
    onelabel review recovered.parquet --audit audit.parquet
    """
    from onelabel.recovery import plan_audit
    from onelabel.recovery.summary import counted

    made = plan_audit(recovered, rows=rows, minutes=minutes, seconds_per_row=seconds_per_row, seed=seed)
    made.save(out)
    if as_json:
        strata = {name: {"rows": there, "drawn": chosen} for name, (there, chosen) in made.sizes.items()}
        emit({"file": out, "pictures": len(made.rows), "strata": strata})
        return
    pictures, groups = counted(len(made.rows), "picture", "pictures"), counted(len(made.sizes), "stratum", "strata")
    typer.echo(f"{out}: {pictures} in {groups}")
    for name, (there, chosen) in made.sizes.items():
        typer.echo(f"{name:<32} {chosen:>5} of {there:>8,}")
    typer.echo(f"to check them: {shlex.join(['onelabel', 'review', str(recovered), '--audit', str(out)])}")


@app.command()
def estimate(
    recovered: Annotated[
        Path, typer.Argument(metavar="RECOVERED", help="The recovered labels the plan was made from.")
    ],
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan, as `onelabel audit plan` writes it.")],
    answers: Annotated[
        Path, typer.Argument(metavar="ANSWERS", help="Parquet from `onelabel review RECOVERED --export`, or a CSV.")
    ],
    out: Annotated[Path | None, typer.Option(help="Write everything here as JSON.")] = None,
    labels: Annotated[Path | None, typer.Option(help="Write completed Labels with the answers in (.npz).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Precision, recall, F1, k and the share of missing labels, with 95% intervals, for the whole dataset.

    Example: onelabel audit estimate recovered.parquet audit.parquet answers.csv --out estimate.json
    """
    from onelabel.recovery import AuditRows, RecoveredFile, estimate_audit
    from onelabel.recovery.answers import match_answers
    from onelabel.recovery.audit import Plan
    from onelabel.recovery.summary import counted
    from onelabel.system import atomic_write

    file, drawn = RecoveredFile.open(recovered), Plan.load(plan)
    said = match_answers(answers, drawn.rows, drawn.examples, file.class_names)
    found = estimate_audit(file, drawn, said.values)
    text = json.dumps({**found.to_json(), "elsewhere": said.elsewhere}, ensure_ascii=False, indent=1)
    if out is not None:
        atomic_write(out, text + "\n")
    if labels is not None:
        AuditRows(drawn.placed(file).rows, said.values, drawn.inclusion).apply(file.labels())[0].save(labels)
    if as_json:
        typer.echo(text)
        return
    audited = counted(found.rows, "audited picture", "audited pictures")
    typer.echo(f"{audited}, {counted(found.unanswered, 'entry', 'entries')} without an answer")
    for note in said.notes():
        typer.echo(note)
    if found.contradictions:
        what = counted(found.contradictions, "observed label is", "observed labels are")
        typer.echo(f"{what} contradicted; the audit is believed")
    for name, each in found.overall.items():
        typer.echo(f"{name:<16} {each}")
    typer.echo(f"{'class':<20} {'count':>30} {'precision':>28} {'recall':>22}")
    for name, numbers in found.classes.items():
        count = numbers["count"]
        span = f"{count.value:.0f} ({count.low:.0f}–{count.high:.0f})"
        typer.echo(f"{name[:20]:<20} {span:>30} {numbers['precision']!s:>28} {numbers['recall']!s:>22}")
