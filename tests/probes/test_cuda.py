"""On a GPU: probes with a share of naming are those of the CPU, in what they are chosen by as well."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from onelabel.labels import Labels
from onelabel.probes import fit_probes, grid

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("graph", [True, False])
def test_naming_and_the_floor_as_on_a_cpu(graph: bool) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 12)).astype(np.float32)
    Y = (X @ rng.normal(size=(12, 5)) > 0).astype(np.uint8)
    Y[np.arange(240), rng.integers(5, size=240)] = 1
    one = Labels.from_classes(np.array([rng.choice(np.flatnonzero(row)) for row in Y]), num_classes=5)
    specs = grid({"em": {}, "roll-call": {"alpha": [0.1, 0.4], "naming": [0.0, 0.5, 1.0]}}, lr=[1e-2], batch_size=16)
    rows = np.split(np.arange(240), [160])
    made = {
        device: fit_probes(
            X[rows[0]], one.take(rows[0]), specs, validation=(X[rows[1]], one.take(rows[1])), device=device, graph=g
        )
        for device, g in (("cpu", None), ("cuda", graph))
    }
    cpu, gpu = made["cpu"], made["cuda"]
    assert cpu.beside is not None
    assert gpu.beside is not None
    np.testing.assert_allclose(gpu.history["validation"], cpu.history["validation"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gpu.beside, cpu.beside, atol=1e-3)
    assert gpu.best == cpu.best
