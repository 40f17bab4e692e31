"""Benchmark results in a report: which are given, and a table of each dataset and mode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onelabel.report import style


def holds_results(path: str | Path) -> bool:
    """Whether there are benchmark results rather than a run."""
    place = Path(path)
    return not (place / "config.toml").is_file() and place.is_dir() and any(place.glob("*.parquet"))


def result_tables(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Per dataset and mode the methods that were run with their recipe's settings, best first; means over seeds.

    Where learning rates were searched, the setting with the best mean validation mAP is shown.
    """
    from onelabel.bench.picking import pick

    made = []
    for dataset, mode in dict.fromkeys((row.dataset, row.mode) for row in rows if row.done):
        names = dict.fromkeys(row.label for row in rows if (row.dataset, row.mode) == (dataset, mode))
        cells = {name: cell for name in names if (cell := pick(rows, dataset, name, mode)) is not None}
        means = {name: mean for name, cell in cells.items() if (mean := cell.mean("test_map")) is not None}
        lines = [
            {
                "name": f"full labels ({style.title(name)})" if name == "bce" else style.title(name),
                "look": style.look(name),
                "mean": mean,
                "text": cells[name].text("test_map"),
                "seeds": len(cells[name].values("test_map")),
                "gain": mean - means["an"] if "an" in means and name != "an" else None,
                "gap": mean - means["bce"] if "bce" in means and name != "bce" else None,
            }
            for name, mean in sorted(means.items(), key=lambda item: -item[1])
        ]
        places = sorted({row.hardware for name in means for row in cells[name].rows if row.hardware})
        if lines:
            made.append({"title": f"{dataset}, {mode}", "rows": lines, "places": "; ".join(places)})
    return made
