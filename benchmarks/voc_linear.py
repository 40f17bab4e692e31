"""The linear half of the VOC 2012 bench and its sweeps, as probes, where there is no command line (a GPU machine).

    PYTHONPATH=src python3 benchmarks/voc_linear.py --data DIR --out $OUT/linear            # all methods, grid, 3 seeds
    PYTHONPATH=src python3 benchmarks/voc_linear.py --data DIR --out $OUT/sweeps --sweep all
    PYTHONPATH=src python3 benchmarks/voc_linear.py --data DIR --out $OUT/linear --near docs/results/bench  # see --near
    PYTHONPATH=src python3 benchmarks/voc_linear.py --data DIR --out $OUT/draws --draws uniform:1,biased:1,biased:-1

DIR holds labels.npz and features-resnet50-448.npz. The same as `onelabel bench DIR`, with larger groups of probes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

#: Beside the methods themselves: ablations and other papers' settings.
VARIANTS = (
    "asl:em", "n-ls:role", "role:reference", "epr:paper", "em-apl:low-proportion", "em-apl:hard", "em-apl:beta=1",
    "em-apl:positive-too", "gr:pseudo", "gr:weight", "gr:robust", "gr:pseudo+weight", "gr:pseudo+robust",
    "gr:weight+robust", "gr:trainable", "gr:reference",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--methods", default="", help="comma-separated; all of them and their ablations unless given")
    parser.add_argument("--sweep", default="", help="sweeps instead, comma-separated, or all")
    parser.add_argument("--draws", default="uniform1200")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--cells", default="", help="only these settings of the grid, as lr/batch: 1e-3/16,1e-4/8")
    parser.add_argument("--search-hyper", action="store_true", help="the recipes' grids of the methods' settings, too")
    parser.add_argument(
        "--near", type=Path, help="results: only settings within 1 mAP of validation of their method's best there"
    )
    parser.add_argument("--group", type=int, help="probes at once; 48 on a CPU, 600 on a GPU")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--gather", type=Path, help="at the end, write all rows of --out into this one file")
    parser.add_argument("--retry", action="store_true")
    parser.add_argument("--device")
    args = parser.parse_args()
    began = time.perf_counter()

    import torch

    from onelabel import bench, list_methods
    from onelabel.bench import command, datasets, picking, probing

    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    probing.GROUP = args.group or (48 if device == "cpu" else 600)
    sweeps = [name for name in bench.SWEEPS if name != "lasd.alpha"] if args.sweep == "all" else args.sweep.split(",")
    plan = command.plan_for(
        "voc2012",
        methods=args.methods.split(",") if args.methods else [*list_methods(), *VARIANTS],
        seeds=range(args.seeds),
        draws=args.draws.split(","),
        sweeps=[name for name in sweeps if name],
        settings={"epochs": args.epochs} if args.epochs else None,
        search_hyper=args.search_hyper,
    )
    if args.cells:
        cells = {(float(lr), int(size)) for lr, _, size in (word.partition("/") for word in args.cells.split(","))}
        plan = [p for p in plan if (p.settings["lr"], p.settings["batch_size"]) in cells]
    Path(args.out).mkdir(parents=True, exist_ok=True)
    if args.near is not None:
        plan = picking.still_open(plan, [*bench.read(args.near), *bench.read(args.out)])
    print(command.summary(plan, args.out, device), flush=True)
    splits = datasets.voc_features(args.data)
    tally = bench.run(
        plan,
        splits,
        out=args.out,
        device=device,
        seconds=args.seconds,
        retry=args.retry,
        weights="resnet50-v1-imagenet.safetensors (features-resnet50-448.npz)",
        told=lambda row: None if row.done else print(command.line(row), flush=True),
    )
    if args.gather is not None:
        bench.gather(args.out, args.gather)
    print(f"{tally}; {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
