"""Machine instructions an entry of the fused losses, counted in what Triton makes for an H200; needs no GPU.

    python benchmarks/instructions.py [--methods an gr] [--dtypes fp32 bf16]

Of a tile without observed labels, once that is known (it takes some four more to find out): all and those of special
functions (ex2, lg2, rcp: one in eight cycles); of a tile that is not looked at first; registers.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
from fused import METHODS, made
from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
from triton.compiler import ASTSource, compile  # type: ignore[import-untyped]

from onelabel.kernels import tiled
from onelabel.kernels.entries import entries
from onelabel.kernels.form import LOG_ONCE, MIRROR
from onelabel.losses.forms import form_of

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def build(name: str, dtype: str, skims: bool) -> tuple[Any, int]:
    """The forward kernel of a method, and entries a thread."""
    form = form_of(made(name), torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.int8))
    assert form is not None
    numbers, _, pointers, stacked = tiled._arguments(form)
    block, warps, _ = tiled.SKIMMED if skims else tiled.FULL
    given = [f"*{dtype}", "*i8", f"*{dtype}", "*fp32", *["*fp32"] * 5, *["i32"] * 8, "fp32"]
    given += ["*fp32" if pointers >> i & 1 else "fp32" for i in range(len(numbers))]
    fixed = (
        *(pointers, stacked, form.positive.kind, form.unknown.kind, form.negative.kind, False, False, False),
        *(tiled.GUESS, True, True, True, True, True, form.two_sided, skims),
        *(form.unknown.kind % MIRROR in LOG_ONCE, 4 if dtype == "fp32" else 8, block),
    )
    names = entries.arg_names
    signature = dict(zip(names, [*given, *["constexpr"] * len(fixed)], strict=True))
    constants = {(len(given) + i,): value for i, value in enumerate(fixed)}
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(given) if kind.startswith("*")}
    source = ASTSource(entries, signature, constants, aligned)
    options = {"num_warps": warps, "enable_fp_fusion": True}
    return compile(source, target=GPUTarget("cuda", 90, 32), options=options), block // (32 * warps)


def dumped(kernel: Any, what: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [str(TOOLS / "cuobjdump"), what, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def blocks(kernel: Any) -> list[list[str]]:
    """Its instructions, cut at branches."""
    found, now = [], []
    for name in re.findall(
        r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)", dumped(kernel, "--dump-sass"), re.M
    ):
        now.append(name)
        if name.startswith(("BRA", "EXIT")):
            found.append(now)
            now = []
    return [*found, now]


def count(name: str, dtype: str) -> str:
    kernel, each = build(name, dtype, True)
    parts = blocks(kernel)
    # The tile without labels stores whole vectors.
    clean = max(range(len(parts)), key=lambda i: (sum(o == "STG.E.128" for o in parts[i]), len(parts[i])))
    special = sum(o.startswith("MUFU") for o in parts[clean])
    registers = re.search(r"REG:(\d+)", dumped(kernel, "--dump-resource-usage"))
    full, its = build(name, dtype, False)
    mixed = max(blocks(full), key=len)
    numbers = (len(parts[clean]) / each, special / each, len(mixed) / its)
    return f"{name:8s} {dtype:5s} " + " ".join(f"{n:6.1f}" for n in numbers) + f" {registers and registers[1]:>5s}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--dtypes", nargs="*", default=["fp32", "bf16", "fp16"])
    args = parser.parse_args()
    print(f"Triton {triton.__version__}\n{'':14s}  clean  special  mixed  registers")
    for name in args.methods:
        for dtype in args.dtypes:
            print(count(name, dtype), flush=True)


if __name__ == "__main__":
    main()
