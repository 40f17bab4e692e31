"""One million rows × 512 features × 1,000 classes, ten probes, within 24 GiB.

    python benchmarks/probes_scale.py               # one epoch of everything: about 10 minutes on 2 free cores
    python benchmarks/probes_scale.py --steps 8     # the same sizes, a few steps of every probe and one evaluation

The features are a float16 memory map and are read batch by batch, the labels stay sparse, scores are made a few
probes at a time. `--limit` caps the address space, so that exceeding it fails instead of swapping.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from onelabel.labels import Labels
from onelabel.probes import ProbeSpec, fit_probes, grid
from onelabel.probes.block import BlockTrainer
from onelabel.probes.criteria import held_out
from onelabel.probes.engine import evaluate
from onelabel.probes.features import as_features
from onelabel.probes.plan import plan


def make(path: Path, rows: int, dim: int, classes: int) -> tuple[np.ndarray, Labels]:
    """Features near a random centre of their class, written block by block."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((classes, dim), dtype=np.float32)
    y = rng.integers(classes, size=rows)
    X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(rows, dim))
    for start in range(0, rows, 50_000):
        part = y[start : start + 50_000]
        X[start : start + 50_000] = centres[part] + 2 * rng.standard_normal((len(part), dim), dtype=np.float32)
    X.flush()
    return np.load(path, mmap_mode="r"), Labels.from_classes(y, num_classes=classes)


def few_steps(X: np.ndarray, labels: Labels, specs: list[ProbeSpec], held: tuple, steps: int) -> None:
    device = torch.device("cpu")
    features, sets = as_features(X, "features"), {"": labels}
    stored = {"": labels.on(device)}
    part = held_out(*held, "observed-map", sets, device)
    for block in plan(specs, sets, X.shape[1], device=device, limit=24 << 30):
        trainer = BlockTrainer(block, features, sets, stored, device=device)
        trainer.begin_epoch(0, 1)
        size = block.cells[0].batch_size
        order = trainer.order(0)
        for i in range(steps):
            trainer.step(order[:, i * size : (i + 1) * size].contiguous())
        print(f"  {block.cells[0]}: {float(evaluate(trainer, part).max()):.4f} after {steps} steps", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=0, help="0 is a whole epoch")
    parser.add_argument("--limit", type=float, default=0, help="GiB of address space, 0 for no cap")
    args = parser.parse_args()
    if args.limit:
        resource.setrlimit(resource.RLIMIT_AS, (int(args.limit * 2**30),) * 2)
    with tempfile.TemporaryDirectory() as folder:
        X, labels = make(Path(folder) / "features.npy", args.rows, args.dim, args.classes)
        cut = args.rows - min(20_000, args.rows // 10)
        train, held = labels.take(np.arange(cut)), (X[cut:], labels.take(np.arange(cut, args.rows)))
        specs = grid(["an", "an-ls", "wan", "em", "gr"], lr=[1e-2, 1e-3], batch_size=args.batch, epochs=1)
        start = time.perf_counter()
        if args.steps:
            few_steps(X[:cut], train, specs, held, args.steps)
        else:
            results = fit_probes(X[:cut], train, specs, validation=held, device="cpu")
            for row in results.leaderboard():
                print(f"  {row.spec}: {row.value:.4f}")
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{len(specs)} probes on {args.rows:,}×{args.dim}×{args.classes} in {seconds:.0f} s; peak memory {peak:.1f} GiB"
    )


if __name__ == "__main__":
    main()
