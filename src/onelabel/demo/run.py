"""`run_demo`: the steps in order, and what they found."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from onelabel.demo import steps
from onelabel.demo.settings import FULL, DemoSettings
from onelabel.system import atomic_write, reading

Echo = Callable[[str], Any]


def run_demo(
    out: str | Path = "runs/demo",
    *,
    seed: int = 0,
    settings: DemoSettings = FULL,
    device: str | None = None,
    echo: Echo = print,
) -> dict[str, Any]:
    """Go the whole way on `digits-scenes` and write everything under `out`.

    What a stopped demo finished there is taken as it is; other settings need another folder.

    Returns:
        The numbers it printed and the paths it made, as plain values; they are in `out`/demo.json too.
    """
    from onelabel.report import write_report

    began, folder = time.perf_counter(), Path(out)
    os.environ.setdefault("ONELABEL_QUIET", "lines")  # bars tell enough
    told = {"schema_version": 1, "seed": seed, "settings": asdict(settings)}
    _claim(folder, json.loads(json.dumps(told)))

    echo("1/6  scenes of handwritten digits; of each, one label is known and the others are hidden")
    scenes = steps.make_scenes(folder, settings, seed)
    echo(f"     {len(scenes.splits.train):,} pictures in {scenes.pictures}, a folder per observed class")
    echo(f"     {scenes.present:.2f} digits a picture are there, 1 is known")

    echo("2/6  a backbone: a small CNN, trained before on other scenes (as others come from ImageNet)")
    weights = steps.make_backbone(folder, settings, seed, device)

    echo("3/6  every method as a probe on the frozen backbone")
    probes = steps.compare_probes(folder, settings, scenes, weights, seed, device)
    for line in _table("test mAP", probes.mAP):
        echo(line)
    echo(f"     {probes.choice.reason}")

    echo("4/6  the same methods as whole networks; `auto` fine-tunes the chosen probe and teaches a student")
    runs = steps.train_networks(folder, settings, scenes, probes, weights, seed, device, echo)
    found = {name: run.result["test_mAP"] for name, run in runs.items()}
    for line in _table("test mAP", found):
        echo(line)

    echo("5/6  the missing labels, with calibrated probabilities: two networks, each scores the half it never saw")
    recovered = steps.recover_labels(folder, settings, scenes, probes, weights, seed, device)
    for line in recovered.text():
        echo(line)

    echo("6/6  the report")
    page = write_report(
        [run.path for run in runs.values() if run.path is not None],
        folder / "report.html",
        recovered=recovered.file,
        leaderboard=probes.leaderboard,
    )
    seconds = round(time.perf_counter() - began, 1)
    result: dict[str, Any] = {
        **told,
        "probes": probes.mAP,
        "chosen": probes.choice.spec.method,
        "networks": found,
        "recovered": recovered.numbers,
        "report": str(page),
        "seconds": seconds,
    }
    atomic_write(folder / "demo.json", json.dumps(result, indent=1) + "\n")
    for line in farewell(folder, page, seconds):
        echo(line)
    return result


def farewell(folder: Path, page: Path, seconds: float) -> list[str]:
    """What was made, and what to do next."""
    program = _program()
    return [
        f"\ndone in {seconds:.0f} s; all of it is in {folder}/",
        f"  {page.name:<20} the page to open first",
        "  leaderboard.csv      every probe",
        "  runs/                a folder per network: settings, metrics, weights, scores",
        "  recovered.parquet    every likely label of every picture",
        "\nnext:",
        f"  {program} review {folder / 'recovered.parquet'}",
        f"  {program} predict {folder / 'runs' / 'auto'} {folder / 'pictures'} --out labels.jsonl",
        f"  {program} train YOUR_PICTURES/ --method auto        # a folder per class is enough",
    ]


def _program() -> str:
    """How this person starts onelabel: `make demo` does not activate its environment."""
    beside = Path(sys.executable).parent / "onelabel"
    return "onelabel" if shutil.which("onelabel") or not beside.exists() else os.path.relpath(beside)


def _claim(folder: Path, told: dict[str, Any]) -> None:
    """Begin in a folder, or go on in one that was begun with the same settings."""
    note = folder / "settings.json"
    if note.is_file():
        with reading(note, "JSON"):
            before = json.loads(note.read_text(encoding="utf-8"))
        if before != told:
            raise ValueError(f"{folder}: holds a demo with another seed or other settings; give another --out")
        return
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder}: is not empty and holds no demo; give another --out")
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(note, json.dumps(told, indent=1) + "\n")


def _table(title: str, values: dict[str, float]) -> list[str]:
    """A line per method, the best first, with a bar from 50 to 100."""
    wide = max(map(len, values), default=0)
    lines = [f"     {'':<{wide}} {title:>8}"]
    for name, value in sorted(values.items(), key=lambda item: -item[1]):
        lines.append(f"     {name:<{wide}} {value:>8.1f}  {'█' * round(max(value - 50, 0) * 0.8)}")
    return lines
