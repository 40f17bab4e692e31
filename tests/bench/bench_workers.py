"""What the tests run as processes of their own: `python bench_workers.py WHAT OUT …`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from conftest import make_splits

from onelabel import bench


def plan() -> list[bench.Planned]:
    return bench.make_plan("toy", ["an", "em"], seeds=[0, 1, 2], settings={"epochs": 1}, search=False)


def race(out: str, journal: str) -> None:
    """Make the whole plan, one run at a time, noting in a journal each training that really begins."""
    from onelabel.training import train

    def noting(splits: Any, **settings: Any) -> Any:
        with open(journal, "a") as file:
            file.write(f"{settings['method']}-{settings['seed']} {os.getpid()}\n")
        time.sleep(0.3)  # long enough for the other worker to come by
        return train(splits, **settings)

    trainers = dict.fromkeys(("an", "em"), noting)
    print(bench.run(plan(), make_splits(), out=out, trainers=trainers, probes=False, device="cpu"))


def hang(out: str, journal: str) -> None:
    """Make the first run, then hang in the second until killed."""
    count = 0

    def hanging(splits: Any, **settings: Any) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            Path(journal).write_text("hanging")
            time.sleep(600)
        from onelabel.training import train

        return train(splits, **settings)

    bench.run(plan(), make_splits(), out=out, trainers=dict.fromkeys(("an", "em"), hanging), probes=False, device="cpu")


if __name__ == "__main__":
    {"race": race, "hang": hang}[sys.argv[1]](*sys.argv[2:])
