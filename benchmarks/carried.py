"""How honest a run's probabilities of new pictures are, before and after the calibration it carries.

    python benchmarks/carried.py

Linear probes on VOC 2012's features (4,574 rows, one label each), calibrated as `onelabel recover RUN` does on the
1,143 held-out rows, of which one label each is known too; expected calibration error of the 5,823 test pictures.
"""

from __future__ import annotations

import torch
from _recovery_cases import VOC

from onelabel.losses.calibrate import fit_calibration
from onelabel.losses.sample import draw_sample
from onelabel.metrics import calibration_error
from onelabel.probes import ProbeSpec, fit_probes
from onelabel.probes.role_table import load_voc_features

METHODS = ("roll-call", "em", "gr", "an-ls")


def main() -> None:
    data = load_voc_features(VOC)
    (X, _), (held, true), (pictures, test) = data.train, data.validation, data.test
    specs = [ProbeSpec(name, lr=1e-3, batch_size=128, epochs=12) for name in METHODS]
    found = fit_probes(X, data.observed, specs)
    k = float(true.sum(1).mean())
    print(f"| | sigmoid | calibrated | calibrated, k = {k:.2f} held |\n| --- | --- | --- | --- |")
    for i, name in enumerate(METHODS):
        scores, sample = found.scores(pictures, i), draw_sample(found.scores(held, i), data.held)
        ways = [torch.sigmoid(scores), *(fit_calibration(sample, k=level).marginal(scores) for level in (None, k))]
        errors = (float(calibration_error(p, test)) for p in ways)
        print(f"| {name} | " + " | ".join(f"{error:.3f}" for error in errors) + " |", flush=True)


if __name__ == "__main__":
    main()
