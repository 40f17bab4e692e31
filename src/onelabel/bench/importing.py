"""Rows from results of before the bench: `benchmarks/voc_finetune.py`'s JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onelabel.bench.plan import make_plan
from onelabel.bench.results import Row


def voc_finetune_rows(path: str | Path, *, commit: str, hardware: str, versions: dict[str, Any]) -> list[Row]:
    """The runs of an old results file as rows with the identity the bench gives such a run, marked as imported.

    Its settings were those of the protocol "onelabel" and the recipes (batch 8, lr 1e-5, head 10×, EMA .998, 10 epochs,
    GR 8) but for early stopping, of which it had none; it kept no per-class AP.
    """
    source = Path(path)
    whole = json.loads(source.read_text(encoding="utf-8"))
    rows = []
    for run in whole["runs"]:
        which: dict[str, Any] = {"modes": ["finetune"], "seeds": [run["seed"]], "settings": {"stop": "none"}}
        (planned,) = make_plan("voc2012", [run["method"]], **which)
        asked = {"batch": "batch_size", "lr": "lr", "head_lr_scale": "head_lr_scale", "ema": "ema", "size": "size"}
        for theirs, ours in asked.items():
            if float(whole["settings"][theirs]) != float(planned.settings[ours]):
                raise ValueError(
                    f"{source}: {theirs} {whole['settings'][theirs]}, the recipe has {planned.settings[ours]}"
                )
        if len(run["history"]) != planned.settings["epochs"]:
            raise ValueError(f"{source}: {len(run['history'])} epochs, the recipe has {planned.settings['epochs']}")
        plain, averaged = run["plain"], run["ema"]
        numbers = {
            "seconds": run["seconds"],
            "stopped_early": run["stopped_early"],
            "best_epoch": plain["best_epoch"],
            "best_epoch_averaged": averaged["best_epoch"],
            "validation_map": plain["validation_mAP"],
            "validation_map_averaged": averaged["validation_mAP"],
            "test_map": plain["test_mAP"],
            "test_map_flip": plain["test_mAP_flip"],
            "test_map_averaged": averaged["test_mAP"],
            "test_map_averaged_flip": averaged["test_mAP_flip"],
            "history": run["history"],
            "extra": {"images_per_second": run["images_per_second"], "imported": source.name},
        }
        about = {"commit": commit, "hardware": hardware, "versions": versions}
        about |= {"weights": Path(whole["settings"]["weights"]).name, "command": "benchmarks/voc_finetune.py"}
        parts = {"train": 4574, "validation": 1143, "test": 5823}
        rows.append(planned.row(plan="imported", rows=parts, **numbers, **about))
    return rows
