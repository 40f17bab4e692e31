"""What an installation without extras must do; run by smoke.sh outside the checkout."""

import importlib.metadata
import importlib.resources
import tempfile
from pathlib import Path

import numpy as np
import torch

import onelabel

assert importlib.metadata.version("onelabel") == onelabel.__version__
assert (importlib.resources.files("onelabel") / "py.typed").is_file()
labels = onelabel.drop_labels(np.eye(4, dtype=np.uint8))
for name in onelabel.list_methods():
    needs = onelabel.method_info(name).needs
    if name in ("bce", "bce-ls", "iu", "iun") or needs.features or needs.views > 1 or needs.weights:
        continue  # they need negatives, features, views or weights
    criterion = onelabel.method(name)
    criterion.bind(labels)
    criterion.begin_epoch(0, 1)
    logits = torch.randn(4, 4, requires_grad=True)
    criterion(logits, labels.rows(range(4)), index=torch.arange(4)).backward()
    assert torch.isfinite(logits.grad).all(), name
with tempfile.TemporaryDirectory() as folder:
    labels.save(Path(folder) / "labels.npz")
    assert onelabel.Labels.load(Path(folder) / "labels.npz") == labels
assert onelabel.metrics.mean_average_precision(np.eye(4), np.eye(4)) == 1.0
print("core ok", onelabel.__version__)
