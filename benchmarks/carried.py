"""How honest a run's probabilities of new pictures are, before and after the calibration it carries.

    python benchmarks/carried.py

Linear probes on VOC 2012's features (4,574 rows, one label each), calibrated as `onelabel recover RUN` does on the
1,143 held-out rows, of which one label each is known too; expected calibration error of the 5,823 test pictures.
"""

from __future__ import annotations

import numpy as np
import torch
from _recovery_cases import VOC, voc

from onelabel.labels import Labels
from onelabel.losses.calibrate import fit_calibration
from onelabel.losses.sample import draw_sample
from onelabel.metrics import calibration_error
from onelabel.probes import ProbeSpec, fit_probes

METHODS = ("roll-call", "em", "gr", "an-ls")


def main() -> None:
    X, true = voc()
    with np.load(VOC / "features-resnet50-448.npz", allow_pickle=False) as file:
        pictures = (file["test"].astype(np.float32) / 255) ** 2 * file["peak"].astype(np.float32)
    with np.load(VOC / "labels.npz", allow_pickle=False) as file:
        test, observed = file["test_true"], file["train_observed_uniform1200"]
    order = np.random.RandomState(1200).permutation(len(true))
    train, held = np.sort(order[:-1143]), np.sort(order[-1143:])
    specs = [ProbeSpec(name, lr=1e-3, batch_size=128, epochs=12) for name in METHODS]
    found = fit_probes(X[train], Labels.from_matrix(observed[train]), specs)
    named, k = Labels.from_matrix(observed[held]), float(true[held].sum(1).mean())
    print(f"| | sigmoid | calibrated | calibrated, k = {k:.2f} held |\n| --- | --- | --- | --- |")
    for i, name in enumerate(METHODS):
        scores, sample = found.scores(pictures, i), draw_sample(found.scores(X[held], i), named)
        ways = [torch.sigmoid(scores), *(fit_calibration(sample, k=level).raw(scores) for level in (None, k))]
        errors = (float(calibration_error(p, test)) for p in ways)
        print(f"| {name} | " + " | ".join(f"{error:.3f}" for error in errors) + " |", flush=True)


if __name__ == "__main__":
    main()
