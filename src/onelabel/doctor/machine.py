"""The machine and the installation."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from onelabel.doctor.finding import Finding, Level

#: Extra → the modules it brings, and what they are for.
EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "cli": (("typer", "rich", "pyarrow", "safetensors", "matplotlib"), "the command line, tables, figures"),
    "sklearn": (("sklearn", "scipy"), "the estimator, digits-scenes, the demo"),
    "vision": (("torchvision", "timm", "lightning", "PIL"), "pictures, backbones, training"),
    "data": (("datasets", "webdataset", "pandas"), "Hugging Face datasets, shards"),
    "bench": (("optuna",), "searches that are not a grid"),
    "review": (("fastapi", "uvicorn", "sqlalchemy"), "the review page"),
    "report": (("jinja2", "matplotlib"), "the HTML report"),
    "export": (("onnx", "onnxruntime", "onnxscript"), "models as ONNX"),
}
#: Packages whose tested versions are worth comparing with what is here.
TESTED = ("torch", "numpy", "torchvision", "timm", "lightning", "scikit-learn", "pyarrow", "safetensors", "typer")


def python() -> Iterable[Finding]:
    version = platform.python_version()
    yield Finding("python", "ok", f"{version} on {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs")
    from onelabel import __version__

    yield Finding("onelabel", "ok", f"{__version__} in {Path(__file__).parents[1]}")


def torch() -> Iterable[Finding]:
    try:
        import torch
    except Exception as error:
        yield Finding("torch", "bad", f"does not import: {error}", "pip install --force-reinstall torch")
        return
    x = torch.ones(8, 8)
    right = float((x @ x).sum()) == 512
    yield Finding(
        "torch", "ok" if right else "bad", f"{torch.__version__}, {torch.get_num_threads()} threads",
        "" if right else "a product of ones came out wrong: reinstall torch",
    )  # fmt: skip


# A broken driver may abort or hang the process that asks, so that another one asks.
_PROBE = """
import torch
if not torch.cuda.is_available():
    print("none|" + str(torch.version.cuda)); raise SystemExit
for i in range(torch.cuda.device_count()):
    x = torch.ones(64, 64, device=f"cuda:{i}")
    assert float((x @ x).sum()) == 64 ** 3, "a product of ones came out wrong"
    free, total = torch.cuda.mem_get_info(i)
    print(f"gpu|{i}|{torch.cuda.get_device_name(i)}|{free / 2**30:.1f}|{total / 2**30:.1f}")
"""


def cuda(seconds: float = 120) -> Iterable[Finding]:
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _PROBE], capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        yield Finding("cuda", "bad", f"no answer within {seconds:.0f} s", "restart the driver, or use --device cpu")
        return
    gpus = [line.split("|") for line in done.stdout.splitlines() if line.startswith("gpu|")]
    for _, number, name, free, total in gpus:
        yield Finding(f"cuda:{number}", "ok", f"{name}, {free} of {total} GiB free, computes")
    if done.returncode != 0:
        said = [line for line in done.stderr.strip().splitlines() if line.strip()]
        told = said[-1] if said else f"the process ended with {done.returncode}"
        yield Finding(
            "cuda", "bad", f"visible but broken: {told}",
            "compare the driver (nvidia-smi) with torch.version.cuda; meanwhile --device cpu",
        )  # fmt: skip
    elif not gpus:
        yield from _no_gpu(done.stdout)


def _no_gpu(answer: str) -> Iterable[Finding]:
    """No GPU for torch; wrong only where the machine seems to have one."""
    built = next((line.partition("|")[2] for line in answer.splitlines() if line.startswith("none|")), "None")
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    device = Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidia0").exists()
    if device and built == "None":
        yield Finding("cuda", "bad", "an NVIDIA driver, and torch is built for CPUs", "install a CUDA torch")
    elif device and hidden is None:
        yield Finding("cuda", "bad", f"a driver, and torch (CUDA {built}) sees no device", "look at nvidia-smi")
    elif hidden:
        yield Finding("cuda", "bad", f"CUDA_VISIBLE_DEVICES={hidden} and no such GPU", "unset CUDA_VISIBLE_DEVICES")
    else:
        yield Finding("cuda", "note", "no GPU: everything runs on the CPU", "fine for probes and small networks")


def versions() -> Iterable[Finding]:
    """What is installed beside what the tests ran with."""
    listed = Path(__file__).resolve().parents[3] / "constraints.txt"
    tested: dict[str, str] = {}
    if listed.is_file():
        pins = re.findall(r"^([\w.-]+)==(\S+)$", listed.read_text(encoding="utf-8"), flags=re.M)
        tested = {name.lower().replace("_", "-"): version for name, version in pins}
    other = []
    for name in TESTED:
        try:
            here = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        wanted = tested.get(name)
        if wanted is not None and here.partition("+")[0] != wanted:
            other.append(f"{name} {here} (tested {wanted})")
    if not tested:
        yield Finding("versions", "ok", "installed as a package: the versions tested are not at hand")
    elif other:
        yield Finding("versions", "note", ", ".join(other), "pip install -c constraints.txt -e '.[all]'")
    else:
        yield Finding("versions", "ok", "as tested")
    for package in ("torch", "numpy"):
        wrong = _below(package)
        if wrong:
            yield Finding("versions", "bad", wrong, f"pip install --upgrade {package}")


def _below(package: str) -> str:
    """The complaint where a package is older than onelabel asks for."""
    asked = next((r for r in importlib.metadata.requires("onelabel") or [] if re.match(rf"{package}\b", r)), "")
    least = re.search(r">=\s*([\d.]+)", asked)
    here = importlib.metadata.version(package)
    if least is None or _numbers(here) >= _numbers(least[1]):
        return ""
    return f"{package} {here}, expected at least {least[1]}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def extras() -> Iterable[Finding]:
    for extra, (modules, purpose) in EXTRAS.items():
        missing, broken = [], ""
        for module in modules:
            if importlib.util.find_spec(module) is None:
                missing.append(module)
            elif module == "torchvision":  # the one that is often built for another torch
                try:
                    importlib.import_module(module)
                except Exception as error:
                    broken = f"{module} does not import: {str(error).strip().splitlines()[0]}"
        if broken:
            yield Finding(f"[{extra}]", "bad", broken, f"pip install --force-reinstall 'onelabel[{extra}]'")
        elif missing:
            found = f"without {', '.join(missing)} there is no: {purpose}"
            yield Finding(f"[{extra}]", "note", found, f"pip install 'onelabel[{extra}]'")
        else:
            yield Finding(f"[{extra}]", "ok", purpose)


def memory() -> Iterable[Finding]:
    import torch

    from onelabel.probes.features import available_memory

    free = available_memory(torch.device("cpu")) / 2**30
    level: Level = "note" if free < 2 else "ok"
    yield Finding("memory", level, f"{free:.1f} GiB free", "under 2 GiB: smaller batches, --size 224")


def cache() -> Path:
    from onelabel.data.cache import default_cache

    return default_cache()


def writable(what: str, folder: Path, remedy: str) -> Iterable[Finding]:
    there = folder.expanduser()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"onelabel")
    except OSError as error:
        yield Finding(what, "bad", f"{folder} cannot be written ({error.strerror or error})", remedy)
        return
    free = shutil.disk_usage(there).free / 2**30
    level: Level = "bad" if free < 0.2 else "note" if free < 5 else "ok"
    yield Finding(
        what, level, f"{folder.expanduser().resolve()} can be written, {free:.1f} GiB free", "free some space"
    )
