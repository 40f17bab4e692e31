"""How strong roll call's pull must be, on nine tasks, and whether held-out rows find it.

    python benchmarks/pull.py [--only voc,ink] [--annotations VOC2012/Annotations] [--json FILE]

Linear probes with α = ¼ to 4 times √(0.2/L), and ROLE and GR beside; 60% of the rows are trained on, 15% choose the
epoch, 25% test. The chosen α is the best by the held-out rows' true labels (mAP) or by their one observed label
(likelihood). "voc-details" is VOC 2012's training pictures with what the annotations say of their boxes ("dog: cut
off", "person: several", "car: left"): 153 labels, 5.2 a picture; it needs --annotations.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import _recovery_cases as cases
import numpy as np

from onelabel.labels import drop_labels
from onelabel.probes import ProbeSpec, fit_probes

FACTORS = (0.25, 0.5, 1, 2, 4)
TASKS = ("voc", "voc-details", "digits", "latent", "ink", "sklearn", "longtail", "rooms", "attributes")


def said_of(path: Path) -> set[str]:
    """What a picture's annotation says, without objects that are marked difficult."""
    root = ElementTree.parse(path).getroot()
    area = float(root.findtext("size/width", "1")) * float(root.findtext("size/height", "1"))
    said, seen = set(), Counter[str]()
    for thing in root.findall("object"):
        if thing.findtext("difficult") == "1":
            continue
        name = thing.findtext("name", "")
        seen[name] += 1
        left, top, right, bottom = (float(thing.findtext(f"bndbox/{k}", "0")) for k in ("xmin", "ymin", "xmax", "ymax"))
        share, pose = (right - left) * (bottom - top) / area, thing.findtext("pose", "").lower()
        words = {
            "small": share < 0.05,
            "fills the picture": share > 0.4,
            "cut off": thing.findtext("truncated") == "1",
            "occluded": thing.findtext("occluded") == "1",
            pose: pose in ("left", "right", "frontal", "rear"),
        }
        said |= {name} | {f"{name}: {word}" for word, true in words.items() if true}
    return said | {f"{name}: several" for name, count in seen.items() if count > 1}


def details(annotations: Path, *, least: int = 40) -> cases.Arrays:
    """VOC's training pictures with every label that at least so many of them have."""
    X, _ = cases.voc()
    with np.load(cases.VOC / "labels.npz", allow_pickle=False) as file:
        names = [Path(str(name)).stem for name in file["train_images"]]
    said = [said_of(annotations / f"{name}.xml") for name in names]
    count = Counter(label for each in said for label in each)
    labels = sorted(label for label, n in count.items() if n >= least)
    return X, np.array([[label in each for label in labels] for each in said], np.uint8)


def measure(X: np.ndarray, Y: np.ndarray, draws: int, epochs: int) -> dict[str, Any]:
    """Of every setting, means over draws: validation and test mAP, likelihood, and test mAP of the epoch by that."""
    rows, classes = Y.shape
    order = np.random.RandomState(0).permutation(rows)
    train, held, test = np.split(order, [int(0.6 * rows), int(0.75 * rows)])
    labels = {str(seed): drop_labels(Y[train], seed=seed) for seed in range(draws)}
    settings: dict[str, tuple[str, dict[str, float]]] = {
        f"{factor:g}": ("roll-call", {"alpha": factor * (0.2 / classes) ** 0.5}) for factor in FACTORS
    }
    settings |= {"role": ("role", {"expected_positives": float(Y[train].sum(1).mean())}), "gr": ("gr", {})}
    specs = [
        ProbeSpec(method, hyper, lr=1e-3, batch_size=32, epochs=epochs, labels=draw)
        for method, hyper in settings.values()
        for draw in labels
    ]
    results = fit_probes(
        X[train],
        labels,
        specs,
        validation=(X[held], Y[held]),
        monitors={
            "test": (X[test], Y[test]),
            "likelihood": (X[held], drop_labels(Y[held], seed=9), "likelihood"),
        },
    )
    likely = results.history["likelihood"]
    by_it = results.history["test"][np.arange(len(specs)), np.nanargmax(likely, 1)]
    columns = {
        "validation": 100 * np.asarray(results.values),
        "test": 100 * results.at_best("test"),
        "likelihood": np.nanmax(likely, 1),
        "test by likelihood": 100 * by_it,
    }
    found = {
        name: {key: round(float(values[i * draws : (i + 1) * draws].mean()), 4) for key, values in columns.items()}
        for i, name in enumerate(settings)
    }
    return {"rows": len(train), "classes": classes, "k": round(float(Y.sum(1).mean()), 2), "settings": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="tasks, separated by commas")
    parser.add_argument("--annotations", type=Path)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: dict[str, Any] = json.loads(args.json.read_text()) if args.json and args.json.is_file() else {}
    for task in args.only.split(",") if args.only else TASKS:
        if task == "voc-details" and args.annotations is None:
            print("voc-details: needs --annotations")
            continue
        X, Y = details(args.annotations) if task == "voc-details" else cases.CASES[task]()
        if not task.startswith("voc"):  # made-up features come in any scale
            X = X / X.std()
        found[task] = measure(X, Y, args.draws, args.epochs)
        of = found[task]
        print(f"{task}: {of['rows']} rows, {of['classes']} classes, k = {of['k']}")
        for name, row in of["settings"].items():
            print(f"  {name:6s}" + "".join(f"  {key} {value:.3f}" for key, value in row.items()), flush=True)
        ours = {name: row for name, row in of["settings"].items() if name not in ("role", "gr")}
        by = {key: max(ours, key=lambda n, k=key: ours[n][k]) for key in ("validation", "likelihood", "test")}
        print("  best factor by " + ", ".join(f"{key} {name}" for key, name in by.items()), flush=True)
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
