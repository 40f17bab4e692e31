"""`onelabel train`: a dataset, a method and settings in; a run folder out."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Annotated

import typer

from onelabel.cli.options import (
    BackboneOption,
    DeviceOption,
    JsonFlag,
    LoaderOptions,
    MethodOption,
    RootOption,
    WeightsOption,
    emit,
    offer,
    offer_data,
    pairs,
)

app = typer.Typer()
AGAIN = "the data again: onelabel train DATA --out"


@app.command()
def train(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA|RUN",
            help="A dataset's name, a folder per class, a table; or a run again.",
            autocompletion=offer_data,
        ),
    ],
    method: MethodOption = None,
    out: Annotated[Path | None, typer.Option(help="The run folder. [default: runs/DATA-METHOD-MODE]")] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="linear, finetune or linearinit. [default: linearinit for roll-call unless weights are random, else "
            "finetune]",
            autocompletion=offer("linear", "finetune", "linearinit"),
        ),
    ] = None,
    backbone: BackboneOption = None,
    weights: WeightsOption = None,
    recipe: Annotated[Path | None, typer.Option(help="Settings as TOML; options here override it.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an earlier process stopped.")] = False,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Passes over the data; of linearinit's first, linear phase --set linear_epochs=N. "
            "[default: 10, linear 25]"
        ),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows a step. [default: 8, linear 16]")] = None,
    lr: Annotated[float | None, typer.Option(help="Of the backbone. [default: 1e-5, linear 1e-3]")] = None,
    size: Annotated[int | None, typer.Option(help="Pixels of a side. [default: 448]")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything that is drawn. [default: 0]")] = None,
    device: DeviceOption = None,
    devices: Annotated[int | None, typer.Option(help="Processes on this machine.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="Any other setting as NAME=VALUE, such as ema=0.998.")
    ] = None,
    hyper: Annotated[
        list[str] | None, typer.Option("--hyper", "-y", help="A method's setting as NAME=VALUE, such as alpha=0.2.")
    ] = None,
    option: LoaderOptions = None,
    root: RootOption = None,
    labels: Annotated[str | None, typer.Option(help="A review's answers, or whole labels, to train on.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Train a classifier from observed labels.

    Examples: onelabel train voc2012 --method gr --weights resnet50.safetensors; onelabel train photos/ --mode linear;
    onelabel train runs/mine --resume; onelabel train runs/mine --labels recovered.review.db
    """
    from onelabel.data import load_dataset, verify_splits
    from onelabel.probes.finetune import config_before, train_chosen
    from onelabel.training import again
    from onelabel.training import train as work
    from onelabel.training.prepare import make_config
    from onelabel.training.recipes import settings_from
    from onelabel.training.run import CHECKPOINT, refuse_foreign

    given = {
        "method": method, "mode": mode, "backbone": backbone, "weights": weights, "epochs": epochs, "lr": lr,
        "batch_size": batch_size, "size": size, "seed": seed, "device": device, "devices": devices,
    }  # fmt: skip
    repeated = again.is_run(data)
    if not repeated and again.is_unfinished(data):
        raise ValueError(f"{data}: a run that does not say what it was trained on; give {AGAIN} {data} --resume")
    if repeated and recipe is None:
        recipe = Path(data) / "config.toml"
    settings = settings_from(recipe, {k: v for k, v in given.items() if v is not None}, pairs(setting, "--set"))
    settings["hyper"] = {**settings.get("hyper", {}), **pairs(hyper, "--hyper")}
    loader = pairs(option, "--option")
    if data == "digits-scenes" and "size" in settings:
        loader.setdefault("size", settings["size"])
    auto = settings.get("method") == "auto"
    origin = again.Origin.load(data) if repeated else again.Origin(data, root, loader)
    if repeated and resume:
        labels = labels or origin.labels
        if origin.auto and not (Path(data) / CHECKPOINT).is_file():
            raise ValueError(f"{data}: stopped before a checkpoint, and auto has to choose again: give {AGAIN} {data}")
    origin = dataclasses.replace(origin, labels=labels, auto=auto or (origin.auto and resume))
    splits = load_dataset(origin.source, root=origin.root, **origin.options)
    loaded = splits.report.lost
    if labels is not None:
        from onelabel.review.apply import relabelled

        splits = relabelled(verify_splits(splits), labels)  # which have no rows of pictures that cannot be read
    config = config_before(splits, settings) if auto else make_config(None, None, settings, splits)
    name = f"{splits.name}-{'auto' if auto else config.method}-{config.mode}"
    own = Path("runs") / name.replace("/", "-")
    folder = out or (own if not repeated else Path(data) if resume else again.next_folder(data))
    refuse_foreign(folder)
    if resume or not (folder / "config.toml").exists():  # else it is another's, and about to be refused
        origin.save(folder)
    if auto:
        run, _ = train_chosen(splits, out=folder, resume=resume, **settings)
    else:
        run = work(splits, out=folder, resume=resume, **settings)
    origin.save(folder, whole=splits.report.lost == loaded)
    parts = [part for part in ("validation", "test") if f"{part}_mAP" in run.result]
    phase = f" ({run.result['best_phase']})" if "best_phase" in run.result else ""
    told = [
        f"best epoch {run.result['best_epoch'] + 1}{phase}",
        *(f"{p} mAP {run.result[f'{p}_mAP']:.2f}" for p in parts),
    ]
    if os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) != "0":
        return
    if as_json:
        emit({"run": folder, "method": run.config.method, **run.result})
    else:
        typer.echo(f"{folder}: {', '.join(told)}")
