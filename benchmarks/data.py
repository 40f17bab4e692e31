"""Pictures per second against torchvision, a manifest of 100,000 files, and memory: `python benchmarks/data.py`.

    python benchmarks/data.py [--pictures DIR] [--count 600] [--files 100000] [--repeats 3] [--size 448]

Without --pictures it draws JPEG pictures of 500×375. The contenders take turns, and medians are printed. Every
measurement runs in a process of its own, whose memory and that of its workers is sampled (proportional set size).
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import platform
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("ONELABEL_QUIET", "1")
BATCH = 32


def _memory(pid: int) -> int:
    """Bytes of a process and its children, shared pages divided among those that share them."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                total += _memory(int(child))
    except OSError:
        pass
    return total


def measured(work: Callable[..., dict[str, float]], *args: Any) -> dict[str, float]:
    """Run `work` in a fresh process; its result, and the peak memory above what its imports took."""

    def body(pipe: Any) -> None:
        import torch

        torch.set_num_threads(1)
        base, peak, done = _memory(os.getpid()), 0, threading.Event()

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.2):
                peak = max(peak, _memory(os.getpid()))

        thread = threading.Thread(target=watch)
        thread.start()
        start = _cpu()
        result = work(*args)
        gc.collect()  # ends the workers, whose time counts from then on
        used = _cpu() - start
        done.set()
        thread.join()
        pipe.send({**result, "peak_mib": (max(peak, base) - base) / 2**20, "cpu": used})

    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=body, args=(there,))
    process.start()
    there.close()
    result: dict[str, float] = here.recv()
    process.join()
    return result


def _cpu() -> float:
    """CPU seconds of this process and the children it has waited for: what a busy machine does not distort."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def draw_pictures(folder: Path, count: int) -> None:
    from PIL import Image, ImageFilter

    rng = np.random.default_rng(0)
    for i in range(count):
        small = Image.fromarray(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)).resize((500, 375))
        grain = Image.fromarray(rng.integers(0, 256, (375, 500, 3), dtype=np.uint8)).filter(ImageFilter.GaussianBlur(1))
        Image.blend(small, grain, 0.3).save(folder / f"{i:05d}.jpg", quality=90)


# --- contenders: each returns pictures per second of whole epochs, decoded, flipped, normalised float32 -------------


def imagefolder(root: str, size: int, workers: int, epochs: int) -> dict[str, float]:
    from torch.utils.data import DataLoader
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    prepare = transforms.Compose(
        [
            transforms.Resize((size, size)),
            transforms.RandomHorizontalFlip(0.5),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    data = ImageFolder(root, prepare)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=workers, persistent_workers=True)
    return _timed(lambda: (images for images, _ in loader), len(data), epochs)


def ours(
    root: str, size: int, workers: int, epochs: int, placement: str, exact: bool, floats: bool = True
) -> dict[str, float]:
    import torch

    from onelabel.data import Augment, device_pictures, load_dataset

    start = time.perf_counter()
    data = load_dataset(root, kind="folder", validation=0, verify="none").train
    pictures = device_pictures(data, size, placement=placement, exact=exact, workers=workers)  # type: ignore[arg-type]
    ready = time.perf_counter() - start
    prepare = Augment(flip=0.5)

    def epoch() -> Any:
        order = torch.randperm(len(data))
        return (prepare(images) if floats else images for _, images in pictures.batches(order, BATCH))

    result = _timed(epoch, len(data), epochs)
    if placement == "host":
        result["first"] = len(data) / (ready + len(data) / result["later"])
    return result


def _timed(epoch: Callable[[], Any], count: int, epochs: int) -> dict[str, float]:
    seconds = []
    for _ in range(epochs):
        start = time.perf_counter()
        seen = sum(len(images) for images in epoch())
        seconds.append(time.perf_counter() - start)
        assert seen == count
    return {"first": count / seconds[0], "later": count / statistics.median(seconds[1:] or seconds)}


def manifest(root: str, out: str, workers: int) -> dict[str, float]:
    from onelabel.data import build_manifest

    start = time.perf_counter()
    made = build_manifest(root, out, workers=workers)
    return {"seconds": time.perf_counter() - start, "rows": made.rows, "reused": made.reused}


def small_files(root: Path, count: int) -> None:
    import io

    from PIL import Image

    for c in range(100):
        (root / f"class{c:02d}").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(count):
        stream = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(stream, "JPEG")
        (root / f"class{i % 100:02d}" / f"{i:06d}.jpg").write_bytes(stream.getvalue())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, default=None, help="a folder of JPEG files")
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--parts", nargs="+", default=["pictures", "memory", "manifest"])
    args = parser.parse_args()
    import PIL
    import torch
    import torchvision

    print(
        f"Python {platform.python_version()}, torch {torch.__version__}, torchvision {torchvision.__version__}, "
        f"Pillow {PIL.__version__}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d')}"
    )
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        root = Path(name) / "pictures"
        (root / "thing").mkdir(parents=True)
        if args.pictures is None:
            draw_pictures(root / "thing", args.count)
        else:
            for file in sorted(args.pictures.glob("*.jpg"))[: args.count]:
                (root / "thing" / file.name).symlink_to(file.resolve())
        if "pictures" in args.parts:
            contenders: dict[str, tuple[Any, ...]] = {
                "torchvision ImageFolder + DataLoader": (imagefolder,),
                "onelabel streamed": (ours, "stream", True),
                "onelabel streamed, exact=False": (ours, "stream", False),
                "onelabel streamed, uint8 for a GPU": (ours, "stream", True, False),
                "onelabel resident": (ours, "host", True),
                "onelabel resident, exact=False": (ours, "host", False),
            }
            runs: dict[str, list[dict[str, float]]] = {label: [] for label in contenders}
            for _ in range(args.repeats):
                for label, (work, *rest) in contenders.items():
                    runs[label].append(measured(work, str(root), args.size, args.workers, 2, *rest))
            words = f"{args.count} pictures to {args.size}×{args.size} float32, 2 epochs, {args.workers} workers"
            print(f"\n{words}, medians of {args.repeats}")
            print(f"{'':<38}{'first epoch':>13}{'later epochs':>14}{'CPU, both':>17}{'peak memory':>13}")
            for label, found in runs.items():
                keys = ("first", "later", "cpu", "peak_mib")
                first, later, cpu, peak = (statistics.median(run[key] for run in found) for key in keys)
                cost = 1000 * cpu / (2 * args.count)
                print(f"{label:<38}{first:>10.0f} /s{later:>11.0f} /s{cost:>9.1f} ms each{peak:>9.0f} MiB")
        if "memory" in args.parts:
            print(
                "\nStreaming more pictures takes no more memory (uint8 for a GPU, one epoch of 1×, 2× and 4× the rows)"
            )
            for times in (1, 2, 4):
                grown = Path(name) / f"grown{times}" / "thing"
                grown.mkdir(parents=True)
                for copy in range(times):
                    for file in sorted((root / "thing").iterdir())[: args.count]:
                        (grown / f"{copy}-{file.name}").symlink_to(file.resolve())
                found = measured(ours, str(grown.parent), args.size, args.workers, 1, "stream", True, False)
                print(f"  {times * args.count:>6,} pictures: peak {found['peak_mib']:.0f} MiB")
        if "manifest" in args.parts:
            print("\nManifest")
            for count in (args.files // 10, args.files):
                files, out = Path(name) / f"files{count}", Path(name) / f"{count}.parquet"
                small_files(files, count)
                new = measured(manifest, str(files), str(out), args.workers)
                again = measured(manifest, str(files), str(out), args.workers)
                assert (new["rows"], again["reused"]) == (count, count)
                speed, size = count / new["seconds"], out.stat().st_size / 2**20
                print(
                    f"  {count:>7,} files: {new['seconds']:.1f} s ({speed:,.0f} /s, {new['cpu']:.1f} s of CPU), "
                    f"peak {new['peak_mib']:.0f} MiB; brought up to date in {again['seconds']:.1f} s "
                    f"({again['cpu']:.1f} s of CPU, peak {again['peak_mib']:.0f} MiB); {size:.1f} MiB on disk"
                )


if __name__ == "__main__":
    main()
