"""The anchors: what others measure on the same features."""

from __future__ import annotations

import pytest

from onelabel.probes import fit_probes, grid
from onelabel.probes.role_table import label_sets, load_voc_features, map_on, role_rows, role_specs


@pytest.mark.shared
@pytest.mark.slow
def test_linear_anchors_on_voc(shared_data):
    data = load_voc_features(shared_data / "voc2012")
    sets = label_sets(data)
    assert (sets["positive"].to_dense() > 0).sum(1).tolist() == [1] * len(data.train[0])
    assert ((sets["positive+negative"].to_dense() > 0) == (sets["positive"].to_dense() > 0)).all()
    specs = grid(["an", "em"], lr=1e-3, batch_size=64, labels="positive")
    specs += grid("bce", lr=1e-3, batch_size=64, labels="full")
    results = fit_probes(data.train[0], sets, specs, validation=data.validation)
    test = 100 * map_on(results, *data.test)
    for value, anchor in zip(test, (83.1, 85.8, 86.5), strict=True):
        assert value == pytest.approx(anchor, abs=0.5)
    rows = role_rows(results, test / 100)
    assert [row["method"] for row in rows] == ["bce", "an", "em"]
    assert [row["published"] for row in rows] == [86.7, 84.2, None]


def test_the_table_is_the_papers_grid():
    specs = role_specs()
    assert len(specs) == 9 * 4 * 2 * 3
    assert {spec.labels for spec in specs if spec.method == "iu"} == {"positive+negative"}
    assert {spec.hyper["expected_positives"] for spec in specs if spec.method == "role"} == {1.5}
