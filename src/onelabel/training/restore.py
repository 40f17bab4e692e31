"""A classifier's weights file says how to rebuild it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from onelabel.losses.naming import NamingHead
from onelabel.methods import method
from onelabel.models import Classifier, build_backbone, read_weights
from onelabel.models.backbones import width_of
from onelabel.models.columns import Columns
from onelabel.system import check_schema, one_line, reading
from onelabel.training.config import SCHEMA, TrainConfig


def weights_metadata(classifier: Classifier, config: TrainConfig, class_names: tuple[str, ...]) -> dict[str, str]:
    """What `classifier_from` needs besides the tensors."""
    layer: Any = getattr(classifier.backbone, "layer2", None)
    v1 = layer is not None and hasattr(layer[0], "conv3") and tuple(layer[0].conv1.stride) == (2, 2)
    about = {
        "schema_version": SCHEMA,
        "backbone": config.backbone if classifier.takes_pictures else "none",
        "head": "linear" if isinstance(classifier.head, nn.Linear) else config.method,
        "features": feature_width(classifier),
        "stride": "v1" if v1 else "v1.5",
        "size": config.size,
        "mean": (classifier.mean.flatten() / 255).tolist(),
        "std": (classifier.std.flatten() / 255).tolist(),
        "class_names": list(class_names),
        "method": config.method,
        "hyper": {k: v for k, v in config.hyper.items() if isinstance(v, (int, float, str, bool))},
    }
    return {"onelabel": json.dumps(about)}


def classifier_from(path: str | Path) -> tuple[Classifier, tuple[str, ...]]:
    """The classifier in a weights file of a run, in eval mode, and its class names."""
    try:
        state, metadata = read_weights(path)
    except ValueError as error:  # its remedy is for weights from elsewhere
        told = one_line(error.__cause__ or error)
        raise ValueError(f"{path}: not the weights of a run ({told}); train it again into another folder") from error
    if "onelabel" not in metadata:
        raise ValueError(f"{path}: not the weights of a run (no 'onelabel' in its metadata)")
    with reading(path, "the weights of a run"):
        about = json.loads(metadata["onelabel"])
        check_schema(about.get("schema_version", 1), SCHEMA, path)
        names, width = tuple(about["class_names"]), int(about["features"])
        # nothing is allocated by a number that the tensors themselves do not bear out
        if not all(isinstance(name, str) for name in names) or not 0 < width <= max(map(Tensor.numel, state.values())):
            raise ValueError(f"class_names {names!r:.40}, {width} features")
        head: Any = None
        if about["head"] != "linear":
            head = method(about["head"], **about["hyper"]).head(width, len(names))
        elif "head.share" in state:
            head = NamingHead(width, len(names))
        body: nn.Module = Columns(width) if "backbone.centre" in state else nn.Identity()
        if about["backbone"] != "none":
            body = build_backbone(about["backbone"], stride=about["stride"] if about["stride"] == "v1" else "auto")
        made = Classifier(
            body,
            head if head is not None else nn.Linear(width, len(names)),
            num_classes=len(names),
            mean=tuple(about["mean"]),
            std=tuple(about["std"]),
        )
        made.load_state_dict(state)
    return made.eval(), names


def feature_width(classifier: Classifier) -> int:
    """D, what the head sees."""
    if isinstance(classifier.head, nn.Linear):
        return classifier.head.in_features
    return width_of(classifier.backbone)
