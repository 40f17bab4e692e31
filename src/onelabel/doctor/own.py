"""What training starts from: pretrained weights, or those and the data that the user brings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from onelabel.doctor.finding import Finding


def weights(path: str | Path, backbone: str | None = None) -> Iterable[Finding]:
    from onelabel.models import build_backbone, read_weights
    from onelabel.models.weights import is_v1_layout
    from onelabel.training.config import TrainConfig

    backbone = backbone or TrainConfig.backbone
    if path == "random":
        yield Finding("weights", "ok", f"{backbone} starts from random ones, as asked")
        return
    try:
        state, metadata = read_weights(path)
    except Exception as error:
        yield Finding("weights", "bad", f"{path} cannot be read: {error}", "give a .safetensors, or a .pth of tensors")
        return
    values = sum(tensor.numel() for tensor in state.values())
    odd = [name for name, tensor in state.items() if tensor.is_floating_point() and not bool(tensor.isfinite().all())]
    if odd:
        yield Finding("weights", "bad", f"{len(odd)} tensors hold NaN or infinity, first {odd[0]}", "fetch them again")
        return
    try:
        build_backbone(backbone, weights=path)
    except Exception as error:
        yield Finding("weights", "bad", str(error), f"give the --backbone they are of; {backbone} was tried")
        return
    layout = " in the original layout (v1 strides)" if is_v1_layout(path, metadata) else ""
    yield Finding("weights", "ok", f"{Path(path).name}: {values / 1e6:.1f} M values that fit {backbone}{layout}")


def pretrained(backbone: str | None = None) -> Iterable[Finding]:
    """Whether the pretrained weights are here; what is on the hub only a download would tell."""
    try:
        from huggingface_hub import constants

        from onelabel.models.backbones import SMALL, check_name
        from onelabel.models.hub import kept_copy
        from onelabel.training.config import TrainConfig

        name = backbone or TrainConfig.backbone
        check_name(name)
        found = None if name in SMALL else kept_copy(name)
    except ImportError:  # the extras say what is not installed
        return
    except (ValueError, RuntimeError) as error:
        yield Finding("weights", "bad", str(error), "choose another --backbone")
        return
    if name in SMALL:
        yield Finding("weights", "ok", f"{name} starts from random ones, there are no others")
    elif found is not None:
        yield Finding("weights", "ok", f"{name}: a copy of the pretrained ones is on this machine")
    else:
        how = "HF_HUB_OFFLINE forbids the download" if constants.HF_HUB_OFFLINE else "downloaded at first use"
        yield Finding(
            "weights", "note", f"{name}: no copy of the pretrained ones on this machine; {how}",
            "without a network give --weights FILE, a .safetensors or .pth",
        )  # fmt: skip


def data(name: str, root: str | None) -> Iterable[Finding]:
    from onelabel.data import load_dataset
    from onelabel.data.load import check_command
    from onelabel.data.report import printable

    try:
        splits = load_dataset(name, root=root)
    except Exception as error:
        yield Finding("data", "bad", str(error), f"{check_command(name, root)} looks closer")
        return
    parts = ", ".join(f"{part} {len(rows):,}" for part, rows in splits.parts.items())
    seen = splits.train.observed.counts().positives
    found = f"{splits.name}: {len(splits.class_names)} classes; {parts}"
    if hasattr(splits.train, "source") and len(splits.train):
        splits.train.source.read(0)
    if splits.report.lost:
        yield Finding("data", "bad", f"{found}; {splits.report.lost:,} rows cannot be used", splits.check)
    elif int((seen == 0).sum()):
        never = [splits.class_names[i] for i in (seen == 0).nonzero()[0][:3]]
        yield Finding("data", "note", f"{found}; never observed: {', '.join(never)}", "such classes cannot be learned")
    else:
        yield Finding("data", "ok", found)
    if alike := splits.report.names("alike"):
        some = ", ".join([*map(printable, alike[:3]), *(["…"] if len(alike) > 3 else [])])
        yield Finding("data", "note", f"separate classes: {some}", "rename one in the data where they mean the same")
