"""The head's learning rate relative to the backbone's, over random and pretrained weights: digits-scenes, small-cnn.

    nice python benchmarks/rates.py                 # about 12 minutes on two busy cores

Test mAP of each seed. *Pretrained* is the same network after EM on other scenes, with a new head.
"""

from __future__ import annotations

import argparse
import copy
import os
from typing import Any

import torch

from onelabel.data import load_dataset
from onelabel.training import train

COMMON: dict[str, Any] = {
    "mode": "finetune", "backbone": "small-cnn", "size": 32, "epochs": 8, "batch_size": 64, "augment": "none",
    "logger": "none", "device": "cpu", "save_scores": False, "record": "off", "student": "off",
}  # fmt: skip
RATES = {
    "random": ((3e-3, "cosine"), (1e-3, "constant")),
    "pretrained": ((1e-3, "cosine"), (1e-4, "constant")),
}


def scenes(seed: int) -> Any:
    return load_dataset("digits-scenes", size=32, n_train=3000, n_validation=500, n_test=1000, seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", nargs="+", choices=sorted(RATES), default=sorted(RATES, reverse=True))
    parser.add_argument("--methods", nargs="+", default=["em", "gr"])
    parser.add_argument("--scales", nargs="+", type=float, default=[1.0, 10.0])
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    os.environ["ONELABEL_QUIET"] = "1"
    torch.set_num_threads(1)
    data = scenes(0)
    for start in given.start:
        before = None
        if start == "pretrained":
            before = train(scenes(99), method="em", lr=3e-3, schedule="cosine", head_lr_scale=1.0, seed=5, **COMMON)
        for method in given.methods:
            for lr, schedule in RATES[start]:
                for scale in given.scales:
                    found = []
                    for seed in range(given.seeds):
                        own = dict(COMMON, lr=lr, schedule=schedule, head_lr_scale=scale, seed=seed)
                        if before is not None:
                            own["model"] = model = copy.deepcopy(before.classifier)
                            torch.manual_seed(seed)
                            model.head.reset_parameters()  # type: ignore[operator]
                        found.append(train(data, method=method, **own).result["test_mAP"])
                    told = ", ".join(f"{value:.1f}" for value in found)
                    print(f"{start:10} {method} lr {lr:g} {schedule:8} head ×{scale:g}: {told}", flush=True)


if __name__ == "__main__":
    main()
