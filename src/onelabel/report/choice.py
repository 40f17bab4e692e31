"""Which of several runs a report is about: by what training itself chose their best epochs by, where they share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from onelabel.report.runs import RunView

#: What a best epoch went by, in words.
CRITERIA = {
    "mAP": "validation mAP",
    "likelihood": "validation likelihood",
    "loss": "training loss",
    "last": "being the last",
}
LIKELIHOOD = (
    "Validation likelihood: the mean log-likelihood of validation's observed labels at the best epoch, better where it "
    "is nearer 0. Training chose the epochs by it: mAP of observed labels prefers networks that say those alone."
)


class Choice(NamedTuple):
    """The run, what it was chosen by (None: nothing that all share), of which runs, and that in words."""

    run: RunView
    by: str | None
    among: list[RunView]
    bold: bool
    told: str


def main_run(runs: Sequence[RunView]) -> RunView:
    """The run the report is about."""
    return choose(runs).run


def choose(runs: Sequence[RunView]) -> Choice:
    """Of the runs on partial labels the best by what they all went by; the first where nothing compares them."""
    partial = [run for run in runs if not run.full] or list(runs)
    among = [run for run in partial if "validation_mAP" in run.result] or partial
    by = shared(among)
    best = among[0] if by is None else max(among, key=lambda run: _value(run, by))
    if len(runs) == 1:
        return Choice(best, by, among, False, "")
    rest = "the rest of this page is about"
    if len(partial) == 1:
        return Choice(best, by, among, True, f"Bold: {best.label}; {rest} it.")
    ways = {CRITERIA[way]: [r.label for r in among if r.criterion == way] for way in CRITERIA}
    ways = {way: labels for way, labels in ways.items() if labels}
    differ = "; ".join(f"{way}: {names(labels)}" for way, labels in ways.items())
    if by is None:
        why = f"their best epochs were chosen by different criteria ({differ}), none of which compares them all"
        why = why if len(ways) > 1 else "nothing measured on validation compares them"
        return Choice(best, by, among, False, f"No run is set in bold: {why}; {rest} {best.label}, the first of them.")
    told = f"Bold: the best of the runs on partial labels by {CRITERIA[by]}; {rest} it."
    if list(ways) != [CRITERIA[by]]:
        told += f" Best epochs were chosen by other criteria ({differ})."
    return Choice(best, by, among, True, told)


def shared(runs: Sequence[RunView]) -> str | None:
    """What compares runs: the criterion that all went by, else mAP where validation's true labels are known to all."""
    ways = {run.criterion for run in runs}
    if ways == {"likelihood"}:
        return "likelihood"
    if any(run.validated("mAP") is None for run in runs):
        return None
    honest = ways == {"mAP"} or all(run.true("validation") is not None for run in runs)
    return "mAP" if honest else None


def names(labels: Sequence[str], most: int = 3) -> str:
    """A few names, and how many more there are."""
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(labels[:most]) + more


def _value(run: RunView, by: str) -> float:
    value = run.validated(by)
    return float("-inf") if value is None else value
