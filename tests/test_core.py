"""The core needs torch and NumPy alone."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys

EXTRAS = "scipy sklearn pyarrow pandas rich typer matplotlib PIL torchvision timm lightning safetensors".split()
EXTRAS += "datasets webdataset fastapi sqlalchemy tensorboard onnx onnxruntime".split()

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"the core asked for {name}")

sys.meta_path.insert(0, Refuse())
import onelabel, torch, numpy as np
for name in onelabel.list_methods():
    if name not in ("smile",):
        onelabel.method(name)
labels = onelabel.drop_labels(np.eye(4, dtype=np.uint8))
labels.save("labels.npz")
assert onelabel.Labels.load("labels.npz") == labels
loss = onelabel.method("gr")(torch.randn(4, 4, requires_grad=True), labels.rows(range(4)))
loss.backward()
print(onelabel.metrics.mean_average_precision(np.eye(4), np.eye(4)))
"""


def test_losses_labels_and_metrics_import_nothing_else(tmp_path) -> None:  # type: ignore[no-untyped-def]
    done = subprocess.run([sys.executable, "-c", CODE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "1.0"
