"""Run the benchmarks that fit this machine, put their rows into one table, compare with the stored baseline.

    make bench                                      # or python benchmarks/run_all.py [--device cuda] [--only fused]
    python benchmarks/run_all.py --save-baseline    # what is measured now becomes the baseline
    python benchmarks/run_all.py --results FOLDER   # of what gpu_speed.py measured on another machine

Writes docs/results/bench-<device>.json and .md: milliseconds, ratios to the peers of the same run (over 1: we are
faster) and to the physical limit. A ratio more than 15% under the baseline's is a regression: it is measured once more,
and if it stays, the exit code is 1. Ratios rather than times, for machines differ and are busy.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "docs" / "results"
VOC = HERE.parent.parent / "shared" / "data" / "voc2012"
TOLERANCE = 0.85
Row = dict[str, Any]


def common(content: Any) -> list[Row]:
    return [
        {"case": r["case"], "ms": r["ms"], "ratio": r["ratio"], "of_limit": r.get("of_limit")} for r in content["rows"]
    ]


def metrics(content: Any) -> list[Row]:
    rows: dict[str, Row] = {}
    for r in content["results"]:
        row = rows.setdefault(f"{r['metric']} {r['size']}", {"peers": {}})
        if r["contender"] == "ours":
            row["ms"] = r["median"]
        else:
            row["peers"][r["contender"]] = r["median"]
    return [
        {"case": case, "ms": r["ms"], "ratio": {k: v / r["ms"] for k, v in r["peers"].items()}, "of_limit": None}
        for case, r in rows.items()
    ]


def training(content: Any) -> list[Row]:
    return [
        {
            "case": f"training, batch {r['batch']}",
            "ms": 1e3 * r["batch"] / r["ours"]["img_per_s"],
            "ratio": {"as published": r["ratio"]} if "ratio" in r else {},
            "of_limit": None,
        }
        for r in content["rows"]
    ]


@dataclass(frozen=True)
class Benchmark:
    """A script, its arguments on a CPU and on a GPU (None: not there), how its JSON reads (None: it only prints)."""

    script: str
    cpu: tuple[str, ...] | None = ()
    cuda: tuple[str, ...] | None = ()
    read: Callable[[Any], list[Row]] | None = common
    device: bool = True
    needs: Path | None = None
    modules: tuple[str, ...] = ()
    minutes: float = 15


BENCHMARKS = (
    Benchmark("fused.py", cuda=("--compile",)),
    Benchmark("losses.py"),
    Benchmark("chunked.py"),
    Benchmark("draw.py", cuda=None, read=None, device=False),
    Benchmark("streaming.py"),
    Benchmark("metrics.py", cpu=("--rounds", "3"), read=metrics, modules=("sklearn", "scipy", "torchmetrics")),
    Benchmark("training.py", read=training, modules=("lightning", "timm")),
    Benchmark("gpu_check.py", cpu=None, read=None),
    Benchmark("probes.py", read=None, needs=VOC),
    Benchmark("probes_scale.py", cpu=("--rows", "100000", "--steps", "20"), cuda=None, read=None, device=False),
    Benchmark("data.py", cpu=("--count", "200", "--files", "10000"), cuda=None, read=None, device=False),
    Benchmark("review.py", cpu=("--suggestions", "100000", "--seconds", "10"), cuda=None, read=None, device=False),
)
#: Experiments about quality, minutes to hours long, and run by hand.
BY_HAND = ("audit.py", "instructions.py", "recovery.py", "selection.py", "voc_bench.py")


def run(benchmark: Benchmark, device: str, folder: Path) -> tuple[str, list[Row]]:
    """What became of it, and its rows."""
    own = benchmark.cuda if device == "cuda" else benchmark.cpu
    if own is None:
        return f"not for {device}", []
    if benchmark.needs is not None and not benchmark.needs.exists():
        return f"skipped: needs {benchmark.needs}", []
    missing = [name for name in benchmark.modules if importlib.util.find_spec(name) is None]
    if missing:
        return f"skipped: needs {', '.join(missing)}", []
    path = folder / f"{benchmark.script}.json"
    command = [sys.executable, str(HERE / benchmark.script), *own]
    command += ["--device", device] if benchmark.device else []
    command += ["--json", str(path)] if benchmark.read is not None else []
    print(f"\n== {benchmark.script}", flush=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent / "src"), str(HERE)])}
    start = time.perf_counter()
    try:
        done = subprocess.run(command, cwd=HERE.parent, env=environment, timeout=60 * benchmark.minutes, check=False)
    except subprocess.TimeoutExpired:
        return f"stopped after {benchmark.minutes:g} minutes", []
    if done.returncode:
        return f"FAILED with exit code {done.returncode}", []
    rows = benchmark.read(json.loads(path.read_text(encoding="utf-8"))) if benchmark.read is not None else []
    return f"{time.perf_counter() - start:.0f} s", [{"benchmark": benchmark.script, **row} for row in rows]


def collected(folder: Path) -> tuple[dict[str, Any], dict[str, str], list[Row]]:
    """About the machine, what became of each benchmark, and the rows, of the JSON files that lie in a folder."""
    about: dict[str, Any] = {}
    statuses: dict[str, str] = {}
    rows: list[Row] = []
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        name = f"{path.stem}.py"
        if isinstance(content, list):
            failed = [c["check"] for c in content if c["verdict"] != "PASS"]
            statuses[name] = f"FAILED: {', '.join(failed)}" if failed else f"{len(content)} checks passed"
        elif path.stem not in ("tune", "others") and "rows" in content and "benchmark" in content:
            about = {key: content[key] for key in ("device", "torch")}
            statuses[name] = f"{len(content['rows'])} rows"
            rows += [{"benchmark": name, **row} for row in common(content)]
    if not about:
        raise SystemExit(f"{folder} holds no results: give the folder that gpu_speed.py --out wrote")
    return about, statuses, rows


def regressions(rows: list[Row], baseline: list[Row], device: str) -> list[str]:
    """Ratios that fell by more than 15%, in words; on a CPU only those to peers, which take turns with us."""
    old = {(r["benchmark"], r["case"]): r for r in baseline}
    found = []
    for row in rows:
        before = old.get((row["benchmark"], row["case"]))
        if before is None:
            continue
        pairs = [(f"ratio to {peer}", row["ratio"].get(peer), value) for peer, value in before["ratio"].items()]
        if device == "cuda":
            pairs.append(("share of the limit", row["of_limit"], before["of_limit"]))
        for what, now, then in pairs:
            if now is not None and then is not None and now < TOLERANCE * then:
                found.append(f"{row['benchmark']} {row['case']}: {what} {now:.2f}, was {then:.2f}")
    return found


def better(one: list[Row], two: list[Row]) -> list[Row]:
    """Of two measurements of the same cases the faster, case by case."""
    second = {r["case"]: r for r in two}
    return [min(r, second.get(r["case"], r), key=lambda x: x["ms"]) for r in one]


def markdown(about: dict[str, Any], rows: list[Row], statuses: dict[str, str], worse: list[str]) -> str:
    lines = [
        f"# Speed on {about['device']}",
        "",
        f"torch {about['torch']}, {about['date']}. Ratios over 1: faster.",
        "",
    ]
    lines += ["| benchmark | case | ms | of the limit | ratio to peers |", "| --- | --- | ---: | ---: | --- |"]
    for r in rows:
        limit = "" if r["of_limit"] is None else f"{r['of_limit']:.0%}"
        peers = ", ".join(f"{name} {value:.1f}×" for name, value in r["ratio"].items())
        lines.append(f"| {r['benchmark']} | {r['case']} | {r['ms']:.3f} | {limit} | {peers} |")
    lines += ["", "| run | |", "| --- | --- |", *(f"| {name} | {status} |" for name, status in statuses.items())]
    lines += ["", "Regressions: " + ("; ".join(worse) if worse else "none") + ".", ""]
    return "\n".join(lines)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="by default a GPU where there is one")
    parser.add_argument("--only", nargs="*", help="parts of the scripts' names")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--save-baseline", action="store_true")
    parser.add_argument("--results", type=Path, help="take results from this folder instead of measuring")
    args = parser.parse_args()
    rows: list[Row] = []
    statuses: dict[str, str] = {}
    if args.results is not None:
        about, statuses, rows = collected(args.results)
        device = "cpu" if about["device"].endswith("cores") else "cuda"
    else:
        import torch

        device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
        name = torch.cuda.get_device_name() if device == "cuda" else f"cpu-{os.cpu_count()}"
        about = {"device": name, "torch": torch.__version__}
    about["date"] = time.strftime("%Y-%m-%d")
    slug = re.sub(r"[^a-z0-9]+", "-", about["device"].lower()).strip("-")
    stored = args.out / f"bench-baseline-{slug}.json"
    baseline = json.loads(stored.read_text(encoding="utf-8"))["rows"] if stored.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        for benchmark in BENCHMARKS if args.results is None else ():
            if args.only and not any(part in benchmark.script for part in args.only):
                continue
            statuses[benchmark.script], found = run(benchmark, device, Path(folder))
            if regressions(found, baseline, device) and not args.save_baseline:
                print("slower than the baseline: once more", flush=True)
                found = better(found, run(benchmark, device, Path(folder))[1])
            rows += found
    worse = [] if args.save_baseline else regressions(rows, baseline, device)
    content = json.dumps({**about, "rows": rows, "runs": statuses, "regressions": worse}, indent=1, ensure_ascii=False)
    write(args.out / f"bench-{slug}.json", content)
    write(args.out / f"bench-{slug}.md", markdown(about, rows, statuses, worse))
    if args.save_baseline:
        write(stored, content)
    print("\n" + markdown(about, rows, statuses, worse))
    broken = [script for script, status in statuses.items() if status.startswith(("FAILED", "stopped"))]
    sys.exit(bool(worse or broken))


if __name__ == "__main__":
    main()
