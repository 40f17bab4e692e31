"""`onelabel export`: a run's classifier, or recovered labels, in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onelabel.cli.options import JsonFlag, emit, offer

app = typer.Typer()


@app.command()
def export(
    source: Annotated[Path, typer.Argument(metavar="RUN|RECOVERED", help="A run, or a recovered.parquet.")],
    to: Annotated[
        str,
        typer.Option(
            help="Of a run: onnx, torchscript, safetensors, hf. Of labels: csv, parquet, coco, label-studio, "
            "fiftyone, hf, folders, yolo, labels.",
            autocompletion=offer("onnx", "torchscript", "safetensors", "hf", "csv", "coco", "label-studio", "yolo"),
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file or folder to write; it must not exist.")],
    pictures: Annotated[list[str] | None, typer.Option(help="Pictures or folders to compare on.")] = None,
    most: Annotated[int, typer.Option(help="Pictures compared at most.")] = 32,
    raw: Annotated[bool, typer.Option("--raw", help="Of a run: sigmoids, whatever calibration there is.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Export a classifier, compared with the run on real pictures; or recovered labels for another tool.

    Examples: onelabel export runs/mine --to onnx --out model.onnx --pictures photos/;
    onelabel export recovered.parquet --to label-studio --out tasks.json
    """
    if source.is_file() or source.suffix == ".parquet":
        from onelabel.recovery import export_recovered

        written = export_recovered(source, to, out)
        if as_json:
            emit({"file": written})
        else:
            typer.echo(str(written))
        return
    from onelabel.recovery import export_run
    from onelabel.recovery.prediction import find_pictures

    samples = find_pictures(pictures)[:most] if pictures else None
    made = export_run(source, to, out, samples=samples, raw=raw)
    if as_json:
        emit(
            {
                "file": made.path,
                "difference": made.difference,
                "inputs": made.inputs,
                "real": made.real,
                "calibrated": made.calibrated,
            }
        )
        return
    kind, how = "real" if made.real else "random", "calibrated" if made.calibrated else "uncalibrated"
    typer.echo(
        f"{made.path}: {how} probabilities differ by at most {made.difference:.1e} on {made.inputs} {kind} inputs"
    )
