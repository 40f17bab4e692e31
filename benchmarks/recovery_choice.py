"""Which criterion chooses a method for recovery, without clean labels: regret against the best method of a draw.

    python benchmarks/recovery_choice.py --cases voc digits --seeds 3       # docs/results/recovery-choice.json
    python benchmarks/recovery_choice.py --methods roll-call                # the other methods' lines in it stay

Criteria, all on held-out scores: `likelihood`, of the observed label under the calibrated naming model; `expected-f1`,
what the calibrated probabilities of unknown entries say the best thresholds would reach; `observed-map`, of ranking the
observed labels (what `probes.choose` takes). Truth: mAP of unknown entries, F1 of the labels added.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _recovery_cases import CASES, draws_of, held_out_scores

from onelabel.losses.calibrate import fit_calibration, log_likelihood
from onelabel.losses.sample import draw_sample
from onelabel.metrics import label_recovery_ap, mean_average_precision
from onelabel.probes import ProbeSpec
from onelabel.recovery.choice import expected_f1
from onelabel.recovery.folds import ArrayScores
from onelabel.system import atomic_write

METHODS: dict[str, dict[str, Any]] = {
    "an": {}, "an-ls": {}, "em": {}, "gr": {}, "role": {"expected_positives": 1.5}, "roll-call": {},
}  # fmt: skip


def line(scores: np.ndarray, Y: np.ndarray, labels: Any) -> dict[str, float]:
    Z = labels.to_dense()
    sample = draw_sample(ArrayScores(scores), labels, entries=50_000)
    fitted = fit_calibration(sample)
    q = fitted.posterior(scores.astype(np.float64), Z).numpy()
    unknown = Z == 0
    expected, limits = expected_f1(fitted, sample)
    called = (q >= limits) & unknown
    return {
        "likelihood": log_likelihood(fitted, sample),
        "expected-f1": expected,
        "observed-map": float(mean_average_precision(scores, Z > 0)),
        "mAP_unknown": 100 * float(label_recovery_ap(q, Y, Z, entries="unknown")),
        "F1_added": 200 * float((Y[called] > 0).sum() / (called.sum() + (Y[unknown] > 0).sum())),
        "k": fitted.k,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=sorted(CASES), default=["voc", "digits"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    target = given.out / "recovery-choice.json"
    known = json.loads(target.read_text()) if target.is_file() else []
    found = {(r["case"], r["draw"], r["method"]): r for r in known}
    for case in given.cases:
        X, Y = CASES[case]()
        draws = draws_of(Y, given.seeds)
        shared = {"lr": 1e-3, "batch_size": 128, "epochs": 12}
        specs = {
            f"{draw}|{name}": ProbeSpec(name, hyper, labels=draw, **shared)
            for draw in draws
            for name, hyper in METHODS.items()
            if name in given.methods
        }
        scores = held_out_scores(X, draws, specs, folds=3)
        for name in specs:
            draw, _, method = name.partition("|")
            key = {"case": case, "draw": draw, "method": method}
            found[case, draw, method] = key | line(scores[name], Y, draws[draw])
            print(json.dumps(found[case, draw, method]), flush=True)
    rows = list(found.values())
    atomic_write(target, json.dumps(rows, indent=1) + "\n")
    for truth in ("mAP_unknown", "F1_added"):
        for criterion in ("likelihood", "expected-f1", "observed-map"):
            told = []
            for case in given.cases:
                for kind in ("uniform", "frequency"):
                    lost = []
                    for s in range(given.seeds):
                        mine = [r for r in rows if r["case"] == case and r["draw"] == f"{kind}{s}"]
                        picked = max(mine, key=lambda r: r[criterion])
                        lost.append(max(r[truth] for r in mine) - picked[truth])
                    told.append(f"{case} {kind} {np.mean(lost):.2f}")
            print(f"{truth} lost by {criterion}: {'; '.join(told)}")
