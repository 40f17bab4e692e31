"""What `onelabel recover` starts from: a dataset's training features, labels and names, or those of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.data import FileSource, list_datasets, load_dataset
from onelabel.data.cache import features as picture_features
from onelabel.labels import Labels
from onelabel.models.columns import even
from onelabel.probes import ProbeSpec
from onelabel.probes.folds import DEFAULT
from onelabel.recovery.folds import AUTO, ArrayScores, CrossFit, pieces
from onelabel.system import reading, say


@dataclass(frozen=True)
class Held:
    """A run's sigmoids of its validation rows, what was observed of these, and their true labels if known."""

    scores: Any
    observed: Labels
    true: NDArray[np.uint8] | None = None


@dataclass(frozen=True)
class Inputs:
    """Training rows: features N×D, observed labels, a name per row, the folder they are relative to."""

    features: Any
    labels: Labels
    examples: list[str] | None
    root: str
    true: NDArray[np.uint8] | None = None
    run: Any = None
    held: Held | None = None
    left_out: int = 0  #: validation rows

    @property
    def method(self) -> ProbeSpec | None:
        """The run's method as a probe, where it was a run and the method suits recovery."""
        if self.run is None:
            return None
        config = self.run.config.resolved()
        if config.method not in AUTO:
            say(
                f"{config.method} suits recovery less: scores are of em probes (--method {config.method} takes its own)"
            )
            return None
        linear = config.mode == "linear"
        lr, size = (config.lr, config.batch_size) if linear else (DEFAULT.lr, DEFAULT.batch_size)
        return ProbeSpec(config.method, config.hyper, lr, size, 0, DEFAULT.epochs)


def is_run(path: str | Path) -> bool:
    """Whether a folder is a run's."""
    return (Path(path) / "config.toml").is_file()


def refuse_absent(source: str) -> None:
    """An error where neither data nor a run is; it names the runs beside it."""
    path, known = Path(source).expanduser(), list_datasets()
    pattern = any(mark in source for mark in "*?[{")
    if source in known or source.startswith("hf:") or pattern or path.exists():
        return
    runs = sorted(each.name for each in path.parent.iterdir() if is_run(each)) if path.parent.is_dir() else []
    if runs:
        names = ", ".join(runs[:5]) + (", …" if len(runs) > 5 else "")
        raise FileNotFoundError(f"{source}: no run or data there; runs in {path.parent}: {names}")
    raise FileNotFoundError(
        f"{source}: neither a dataset ({', '.join(known)}) nor a run, folder, table, shard or features file that exists"
    )


def load_inputs(
    source: str | Path,
    *,
    data: str | None = None,
    tuned: bool = False,
    backbone: str | None = None,
    weights: str | None = None,
    size: int = 448,
    device: str | None = None,
    root: str | None = None,
    loader: Mapping[str, Any] | None = None,
    **options: Any,
) -> Inputs:
    """Read RUN (with `data`, what it was trained on) or DATA.

    Pictures become features: of `backbone`, of a run's, or of training's own. A fine-tuned backbone has seen every
    row's label, and scores on its features are no longer held out: a run's initial weights are used unless `tuned`.
    """
    run: Any = None
    options = {**options, **(loader or {})}
    drawn: dict[str, Any] = {}
    if is_run(source):
        from onelabel.training import Run
        from onelabel.training.again import Origin

        if data is None:
            origin = Origin.load(source)
            drawn = {name: value for name, value in origin.options.items() if name == "validation"}
            data, root, options = origin.source, root or origin.root, {**origin.options, **options}
        run = Run.load(source)
    else:
        data = str(source)
        options.setdefault("validation", 0.0)  # nothing needs to be held out: every row is scored without its label
    folder = Path(str(data)).expanduser()
    if (folder / "labels.npz").is_file() and (folder / "features-resnet50-448.npz").is_file():
        return _packed(folder, run)
    if data == "digits-scenes" and run is not None:
        options.setdefault("size", run.config.size)
    splits = load_dataset(data, root=root, **options)
    part, held = splits.train, _held(run, splits)
    left_out = 0 if splits.validation is None else len(splits.validation)
    if held is None and run is not None and "validation" in options:  # all rows are wanted: which were held out then?
        held = _held(run, load_dataset(data, root=root, **{**options, "validation": 0.2, **drawn}))
    if run is not None and tuple(part.class_names) != tuple(run.class_names):
        raise ValueError(f"{data}: its {part.num_classes} class names are not those the run was trained on")
    if hasattr(part, "X"):
        splits.tell()
        (X,) = even(part.X)
        return Inputs(X, _named(part.observed, part.class_names), None, "", part.true, run, held, left_out)
    size = size if run is None else run.config.size
    network, look = _network(run, backbone, weights, tuned, size)
    found = picture_features(part, network, device=device, size=size, **look)
    part.report.extend(found.failed.values())
    splits.tell()
    keep = np.setdiff1d(np.arange(len(part)), list(found.failed))
    X = found.array if len(keep) == len(part) else np.asarray(found.array[keep])
    base = str(Path(part.source.root).resolve()) if isinstance(part.source, FileSource) else ""
    names = [str(part.source.paths[i]) for i in keep]
    true = None if part.true is None else part.true[keep]
    return Inputs(X, _named(part.observed.take(keep), part.class_names), names, base, true, run, held, left_out)


def _held(run: Any, splits: Any) -> Held | None:
    """What a run said of rows that it did not train on."""
    part, scores = splits.validation, None if run is None else run.scores.get("validation")
    if part is None or scores is None or scores.shape != part.observed.shape:
        return None
    return Held(scores, part.observed, part.true)


def _packed(folder: Path, run: Any) -> Inputs:
    """VOC's features as `probes.role_table.load_voc_features` packs them, all training rows."""
    with reading(folder, "VOC's features and labels, as many rows of each", remedy="unpack them again"):
        with np.load(folder / "labels.npz", allow_pickle=False) as file:
            names = tuple(map(str, file["classes"]))
            labels, true = Labels.from_matrix(file["train_observed_uniform1200"], names), file["train_true"]
            examples = [*map(str, file["train_images"])]
        with np.load(folder / "features-resnet50-448.npz", allow_pickle=False) as file:
            X = ((file["train"].astype(np.float32) / 255) ** 2 * file["peak"]).astype(np.float32)
        if len({len(X), len(labels), len(true), len(examples)}) > 1:
            raise ValueError(f"{len(X)} features, {len(labels)} labels, {len(examples)} names")
    return Inputs(X, labels, examples, "", true, run)


def _named(labels: Labels, names: Any) -> Labels:
    return Labels(labels.indptr, labels.indices, labels.values, labels.num_classes, list(names))


def _network(run: Any, backbone: str | None, weights: str | None, tuned: bool, size: int) -> tuple[Any, dict[str, Any]]:
    """The backbone, and how its pictures are normalised: as training takes it, or as the run was trained."""
    from onelabel.models import build_backbone, starting_weights
    from onelabel.training.frozen import frozen_backbone

    if run is None or backbone is not None:
        return frozen_backbone(backbone, weights, size=size)
    mean, std = ((b.flatten() / 255).tolist() for b in (run.classifier.mean, run.classifier.std))
    look = {"mean": mean, "std": std}
    if tuned or run.config.mode == "linear":
        return run.classifier.backbone, look
    config = run.config
    began = starting_weights(config.backbone, config.weights)  # none named means pretrained here as in training
    if began is None:
        say(f"{config.backbone} began from random weights, which tell little: --tuned takes the trained ones")
    return build_backbone(config.backbone, weights=began, stride=config.stride), look


def role_scores(inputs: Inputs, fitted: CrossFit) -> ArrayScores | CrossFit:
    """Cross-fitted scores put into the order of ROLE's own estimates, class by class, where the run's method is ROLE.

    ROLE's table ỹ has seen the observed labels, so that its values cannot be calibrated against them; their order
    among a class's unknown entries can be used. Each class keeps its cross-fitted scores and hands them out in the
    order of ỹ. Without a table of this shape in the run, the scores are left as they are.
    """
    run = inputs.run
    if run is None or run.config.method != "role" or run.config.hyper.get("estimator", "table") != "table":
        return fitted
    from onelabel.methods import method

    made = method("role", **run.config.hyper)
    made.bind(inputs.labels)
    own = made.state_dict()
    if any(name not in run.method_state or run.method_state[name].shape != own[name].shape for name in own):
        return fitted
    made.load_state_dict(run.method_state)
    estimates = made.estimated_labels().float().cpu().numpy()
    scores = np.concatenate([fitted.rows(rows) for rows in pieces(fitted)])
    return ArrayScores(in_order_of(scores, estimates, inputs.labels))


def in_order_of(scores: NDArray[np.float32], estimates: NDArray[Any], labels: Labels) -> NDArray[np.float32]:
    """Each class's scores of unknown entries, handed out in the order of the estimates."""
    out, unknown = scores.copy(), labels.to_dense() == 0
    for c in range(scores.shape[1]):
        rows = np.flatnonzero(unknown[:, c])
        out[rows[np.argsort(estimates[rows, c], kind="stable")], c] = np.sort(scores[rows, c])
    return out
