"""The options that several commands share: one name, one meaning, one completion each; and how results are printed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

#: What completion offers of datasets; a test compares it with the registry.
DATASETS = ("voc2012", "coco2014", "nuswide", "cub", "digits-scenes")


def offer(*names: str) -> Callable[[str], list[str]]:
    """A completion of these names; after a comma, of the next one."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [before + comma + name for name in names if name.startswith(last)]

    return complete


def method_names() -> list[str]:
    """The methods' names as their sources register them: completion does not wait for torch."""
    rooms = [Path(__file__).parents[1] / room for room in ("losses", "methods")]
    texts = (file.read_text(encoding="utf-8") for room in rooms for file in sorted(room.glob("*.py")))
    return sorted(name for text in texts for name in re.findall(r"^@register\(\s*\"([^\"]+)\"", text, flags=re.M))


def offer_methods(incomplete: str) -> list[str]:
    """A completion of methods' names, of the next one after a comma."""
    return offer(*method_names())(incomplete)


def offer_method(incomplete: str) -> list[str]:
    """The same where `auto` may be said."""
    return offer("auto", *method_names())(incomplete)


def offer_data(incomplete: str) -> list[str]:
    """Dataset names, then what lies on the disk."""
    typed = Path(incomplete)
    folder = typed if incomplete.endswith("/") else typed.parent
    try:
        found = sorted(folder.iterdir()) if folder.is_dir() else []
    except OSError:
        found = []
    paths = [f"{path}/" if path.is_dir() else str(path) for path in found if not path.name.startswith(".")]
    return [name for name in (*DATASETS, *paths) if name.startswith(incomplete)]


DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A dataset's name, a folder per class, a table, shards, a features file.",
        autocompletion=offer_data,
    ),
]
MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="A name of `onelabel methods`, or auto. [default: roll-call to train, em to recover, or the run's]",
        autocompletion=offer_method,
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device", help="cpu, cuda or cuda:N; a GPU where there is one.", autocompletion=offer("cpu", "cuda")
    ),
]
BackboneOption = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        help="A timm model, or small-cnn: makes features of pictures. [default: resnet50, or the run's]",
        autocompletion=offer("resnet50", "small-cnn", "vit_base_patch16_224", "convnext_tiny"),
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option("--weights", help="The backbone's: a .safetensors or .pth file, or random. [default: pretrained]"),
]
RootOption = Annotated[
    str | None,
    typer.Option("--root", help="Where a dataset's archives lie, or a table's paths start. [default: $ONELABEL_DATA]"),
]
LoaderOptions = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", help="An option of the data's loader as NAME=VALUE, such as split=official."),
]
ForceFlag = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of text.")]


def pairs(given: list[str] | None, option: str) -> dict[str, Any]:
    """NAME=VALUE words; values are JSON where they can be, else text."""
    found: dict[str, Any] = {}
    for pair in given or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{option}: {pair!r}, expected NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def share(given: str) -> float | None:
    """A precision, or None for `f1`."""
    if given == "f1":
        return None
    try:
        found = float(given)
    except ValueError:
        found = math.nan
    if not 0 < found <= 1:
        raise ValueError(f"--precision: {given!r}, expected a share above 0 and at most 1, or f1")
    return found


def names(given: str) -> list[str]:
    """The words of a comma-separated option."""
    return [name.strip() for name in given.split(",") if name.strip()]


def emit(value: Any) -> None:
    """One JSON document on stdout; what is not a number (NaN, infinity) is null, as strict readers want it."""
    typer.echo(json.dumps(_plain(value), ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:  # a number of NumPy or torch
        return _plain(value.item())
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value if isinstance(value, (str, int, bool, type(None))) else str(value)
