"""Roll call's parts on a second dataset: digits-scenes, the demo's small CNN, trained on other scenes before.

    python benchmarks/roll_call.py [--seeds 3] [--draws uniform,biased:1,biased:-1] [--json FILE]

Every row is trained alike (the demo's settings, averaged weights); each seed has scenes, draw and backbone of its own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROWS: dict[str, dict[str, Any]] = {
    "full labels": {"method": "bce"},
    "an": {"method": "an"},
    "em": {"method": "em"},
    "gr": {"method": "gr"},
    "roll-call, no student": {"method": "roll-call", "student": "off"},
    "roll-call, student of the whole": {"method": "roll-call", "student_looks": "whole"},
    "roll-call, targets not smoothed": {"method": "roll-call", "student_smoothing": 0.0},
    "roll-call, smoothed by 0.1": {"method": "roll-call", "student_smoothing": 0.1},
    "roll-call, smoothed by 0.4": {"method": "roll-call", "student_smoothing": 0.4},
    "roll-call": {"method": "roll-call"},
    "em with a student": {"method": "em", "student": "on"},
    "gr with a student": {"method": "gr", "student": "on"},
    "roll-call, one label held out too": {"method": "roll-call"},
    "em with a student, one label held out too": {"method": "em", "student": "on"},
    "gr, one label held out too": {"method": "gr"},
}

KEYS = ("plain", "averaged", "validation", "seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", default="uniform")
    parser.add_argument("--rows", default="", help="names of rows, separated by ';'")
    parser.add_argument("--mode", default="finetune", choices=["finetune", "linearinit"])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()

    from onelabel.bench.draws import observe
    from onelabel.demo import steps
    from onelabel.demo.settings import FULL
    from onelabel.training import train

    names = [name.strip() for name in args.rows.split(";") if name.strip()] or list(ROWS)
    found: dict[str, dict[str, list[float]]] = {}
    for seed in range(args.seeds):
        with tempfile.TemporaryDirectory() as place:
            scenes = steps.make_scenes(Path(place), FULL, seed)
            weights = steps.make_backbone(Path(place), FULL, seed, None)
            for draw in args.draws.split(","):
                for name in names:
                    data: Any = scenes.full if name == "full labels" else scenes.splits
                    if draw != "uniform" and name != "full labels":
                        data = replace(data, train=replace(data.train, observed=observe(data.train, draw)))
                    if name.endswith("held out too"):
                        data = replace(data, validation=replace(data.validation, true=None))
                    began = time.perf_counter()
                    settings = {
                        **FULL.training,
                        "mode": args.mode,
                        "weights": weights,
                        "seed": seed,
                        "ema": 0.98,
                        **ROWS[name],
                    }
                    run = train(data, **settings)
                    values = [run.result["plain"]["test_mAP"], run.result["ema"]["test_mAP"]]
                    values += [run.result["validation_mAP"], time.perf_counter() - began]
                    told = "{:.2f}  averaged {:.2f}  validation {:.2f}  {:.0f} s".format(*values)
                    print(f"{draw:10s} seed {seed}  {name:44s} {told}", flush=True)
                    for key, value in zip(KEYS, values, strict=True):
                        found.setdefault(f"{draw} {name}", {}).setdefault(key, []).append(round(value, 3))
    print(f"\n{'test mAP, mean and deviation over seeds':60s} plain          averaged       validation  seconds")
    for name, row in found.items():
        cells = [
            f"{np.mean(row[k]):.2f} ± {np.std(row[k], ddof=1) if args.seeds > 1 else 0:.2f}"
            for k in ("plain", "averaged")
        ]
        more = f"{np.mean(row['validation']):10.2f} {np.mean(row['seconds']):8.0f}"
        print(f"{name:60s} {cells[0]:14s} {cells[1]:14s} {more}")
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
