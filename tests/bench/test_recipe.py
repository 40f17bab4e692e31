"""Recipes hold what the papers print, name real settings, and reach the runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from onelabel import bench, contract, list_methods, method, method_info
from onelabel.bench.protocols import PROTOCOLS, protocol
from onelabel.bench.recipe import FOLDER, list_recipes, product, recipe, settled, variants
from onelabel.losses import EM
from onelabel.training.config import TrainConfig
from onelabel.training.recipes import settings_from

DATASETS = ("voc2012", "coco2014", "nuswide", "cub")
OURS = protocol("onelabel")
#: As printed: EM supplement Table 5, GR Table 6, LASD Table 4, EM supplement C; one value a dataset.
PRINTED = {
    ("em-apl", "alpha"): (0.2, 0.1, 0.1, 0.01),
    ("em-apl", "beta"): (0.02, 0.9, 0.2, 0.4),
    ("em-apl", "warmup"): (5, 5, 4, 3),
    ("em-apl", "proportion"): (0.9, 0.9, 0.9, 0.9),
    ("em-apl", "batch_size"): (8, 16, 16, 8),
    ("em-apl", "lr"): (1e-5, 1e-5, 1e-5, 1e-4),
    ("em", "alpha"): (0.2, 0.1, 0.1, 0.01),
    ("gr", "batch_size"): (8, 16, 16, 8),
    ("gr", "lr"): (1e-5, 1e-5, 1e-5, 5e-5),
    ("gr", "epochs"): (8, 8, 10, 10),
    ("gr", "q2"): (0.01, 0.01, 0.01, 0.01),
    ("gr", "q3"): (1, 1, 1, 1.5),
    ("gr", "w"): (2, 10, 10, 10),
    ("gr", "b"): (-2, -8, -8, -8),
    ("gr", "mu"): (0.8, 0.8, 0.8, 0.8),
    ("gr", "sigma"): (0.5, 0.5, 0.5, 0.5),
    ("lasd", "lam_positive"): (0.1, 0.03, 0.015, 0.005),
    ("lasd", "tau"): (0.9, 0.9, 0.95, 0.93),
    ("lasd", "alpha"): (0.7, 0.1, 0.15, 0.03),
    ("dw", "gamma"): (0.1, 0.1, 0.1, 0.02),
    ("l1r", "strength"): (1e-6, 1e-7, 1e-7, 1e-9),
    ("n-ls", "unknown_smoothing"): (0.3, 0.1, 0.1, 0.1),
    ("entmin", "alpha"): (0.01, 0.9, 0.4, 0.4),
    ("asl:em", "gamma_negative"): (2, 2, 2, 1),
    ("asl:em", "margin"): (0.2, 0.2, 0.2, 0),
    ("role", "expected_positives"): (1.5, 2.9, 1.9, 31.4),
    ("epr", "expected_positives"): (1.5, 2.9, 1.9, 31.4),
    ("lasd", "expected_positives"): (1.46, 2.94, 1.89, 31.4),
    ("lasd", "gamma_positive"): (0, 0, 0, 0),
    ("lasd", "gamma_negative"): (4, 4, 4, 4),
    ("fan", "gamma"): (2, 2, 2, 2),
    ("focal", "gamma"): (2, 2, 2, 2),
    ("focal", "alpha"): (0.75, 0.75, 0.75, 0.75),
    ("asl", "gamma_negative"): (4, 4, 4, 4),
    ("asl-ps", "margin"): (0.05, 0.05, 0.05, 0.05),
    ("an-ls", "positive_smoothing"): (0.1, 0.1, 0.1, 0.1),
    ("an-ls", "unknown_smoothing"): (0.1, 0.1, 0.1, 0.1),
    ("gr", "q1"): (0.01, 0.01, 0.01, 0.01),
    ("l2r", "strength"): (1e-6, 1e-7, 1e-7, 1e-8),
    ("em-apl:low-proportion", "proportion"): (0.1, 0.1, 0.1, 0.1),
    ("em-apl:positive-too", "positive_proportion"): (0.1, 0.1, 0.1, 0.1),
}
#: As printed: which settings a paper searched, and over what.
GRIDS = {
    ("em", "alpha"): (0.01, 0.02, 0.1, 0.2, 0.4, 0.9),
    ("em-apl", "beta"): (0.01, 0.02, 0.1, 0.2, 0.4, 0.9),
    ("dw", "gamma"): (0.01, 0.02, 0.1, 0.2, 0.4, 0.9),
    ("entmin", "alpha"): (0.01, 0.02, 0.1, 0.2, 0.4, 0.9),
    ("an-ls", "positive_smoothing"): (0.1, 0.2, 0.3),
    ("an-ls", "unknown_smoothing"): (0.1, 0.2, 0.3),
    ("n-ls", "unknown_smoothing"): (0.1, 0.2, 0.3),
    ("l1r", "strength"): (1e-9, 1e-8, 1e-7, 1e-6, 1e-5),
    ("l2r", "strength"): (1e-9, 1e-8, 1e-7, 1e-6, 1e-5),
    ("focal", "alpha"): (0.25, 0.5, 0.75),
    ("asl", "gamma_negative"): (1, 2),
    ("asl", "margin"): (0, 0.05, 0.2),
    ("gr", "b"): (-2, -5, -8),
    ("gr", "sigma"): (0.1, 0.5, 1),
}


@pytest.mark.parametrize(("name", "setting"), PRINTED)
def test_values_are_the_printed_ones(name: str, setting: str) -> None:
    for dataset, value in zip(DATASETS, PRINTED[name, setting], strict=True):
        found = recipe(dataset, name, "finetune", OURS)
        told = method(found.method, **found.hyper)._hyper  # a method's own default counts
        assert {**found.settings, **told}[setting] == value, dataset


@pytest.mark.parametrize("dataset", DATASETS)
def test_grids_are_the_printed_ones_and_hold_what_was_chosen(dataset: str) -> None:
    for (name, setting), values in GRIDS.items():
        (tried,) = (p[setting] for p in recipe(dataset, name, "finetune", OURS).planes if setting in p)
        assert tuple(tried) == values, (name, setting)
    for name in list_recipes(dataset):
        found = recipe(dataset, name, "finetune", OURS)
        assert found.search["lr"] == [1e-2, 1e-3, 1e-4, 1e-5]
        assert found.search["batch_size"] == [8, 16]
    lasd = recipe(dataset, "lasd", "finetune", OURS)
    assert set(lasd.planes[0]) == {"tau", "lam_positive", "alpha"}
    assert all(0.85 < tau < 1 for tau in lasd.planes[0]["tau"])
    for name in ("lasd", "gr", "em-apl", "dw"):  # what a paper took is among what it tried
        found = recipe(dataset, name, "finetune", OURS)
        for plane in found.planes:
            points = [{**found.hyper, **settled(name, point)} for point in product(plane)]
            assert found.hyper in points, (name, plane)


def test_a_grid_holds_the_planes_of_a_figure_and_leaves_what_is_fixed() -> None:
    grid = recipe("voc2012", "gr", "linear", OURS).grid()
    assert len(grid) == 1 + 14 + 14 + 11  # 3 × 5, 3 × 5 and 3 × 4 around the recipe's, which is in all three
    assert grid[0] == recipe("voc2012", "gr", "linear", OURS).hyper
    assert {round(-p["b"] / p["w"], 9) for p in grid} == {0.6, 0.7, 0.8, 0.9, 1.0}
    assert sum(p["b"] != -2 and p["mu"] != 0.8 for p in grid) == 0  # a plane at a time
    assert len(recipe("voc2012", "em-apl", "linear", OURS).grid()) == 36
    assert {p["alpha"] for p in recipe("voc2012", "lasd", "linear", OURS).grid()} == {
        0.0
    }  # no pictures, no consistency
    assert len({p["alpha"] for p in recipe("voc2012", "lasd", "finetune", OURS).grid()}) == 5
    ablation = recipe("voc2012", "gr:pseudo", "linear", OURS)
    assert ablation.grid() == [ablation.hyper]
    own = recipe("mine", "em", "linear", OURS).grid()
    assert own[0] == {}
    assert [p["alpha"] for p in own[1:]] == [0.01, 0.02, 0.1, 0.4, 0.9]  # its default, 0.2, is the first
    gr = [{**method_info("gr").defaults, **p} for p in recipe("mine", "gr", "linear", OURS).grid()]
    assert len(gr) == len({str(sorted(p.items(), key=str)) for p in gr}) == 40
    assert recipe("voc2012", "an", "linear", OURS).grid() == [{}]


def test_a_method_of_ones_own_is_searched_over_what_it_says_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "_REGISTRY", dict(contract._REGISTRY))
    entry = {"title": "t", "paper": "p", "year": 2026, "formula": "f"}

    @contract.register("mine", **entry, alpha=0.4)
    class Mine(EM):
        hyper: ClassVar = {**EM.hyper, "expected_positives": contract.Hyper("k", 0, 9, (1.5, 2.5))}

        def __init__(self, *, alpha: Any = 0.2, expected_positives: Any = 1.5, stack: int | None = None) -> None:
            super().__init__(alpha=alpha, stack=stack)

    found = recipe("voc2012", "mine", "linear", OURS, k=2.0)  # k is the data's, not searched
    assert [p.get("alpha") for p in found.grid()] == [None, 0.01, 0.02, 0.1, 0.2, 0.9]
    assert {p["expected_positives"] for p in found.grid()} == {2.0}
    assert found.search == {}  # rates and batch sizes are the protocols' own


def test_roles_table_learns_ten_times_as_fast_by_itself() -> None:
    assert method("role", **recipe("voc2012", "role", "finetune", OURS).hyper).lr_scale == 10


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_method_has_a_recipe_that_makes_it(dataset: str) -> None:
    assert set(list_recipes(dataset)) <= set(list_methods())
    for name in list_recipes(dataset):
        for each in (name, *(f"{name}:{variant}" for variant in variants(dataset, name))):
            for mode in ("linear", "finetune", "linearinit"):
                found = recipe(dataset, each, mode, OURS)
                method(found.method, **found.hyper)  # every setting exists and lies in its range
                config = TrainConfig.make({**found.settings, "hyper": found.hyper})
                assert config.mode == mode
            for point in found.grid():
                method(found.method, **point)


def test_recipe_files_serve_train_too() -> None:
    path = FOLDER / "voc2012" / "em-apl.toml"
    fine, linear = settings_from(path), settings_from(path, {"mode": "linear"})
    assert (fine["lr"], fine["epochs"], fine["hyper"]["warmup"]) == (1e-5, 10, 5)
    assert (linear["lr"], linear["epochs"], linear["hyper"]["warmup"]) == (1e-3, 25, 12)
    assert linear["hyper"]["alpha"] == 0.2  # what the mode does not say stays
    TrainConfig.make(linear)
    assert "hyper" not in settings_from(path, {"method": "an"})


def test_protocols_differ_where_the_papers_do() -> None:
    assert recipe("voc2012", "em", "finetune", protocol("em")).settings["stop"] == "em"
    assert recipe("voc2012", "gr", "finetune", protocol("gr")).settings["head_lr_scale"] == 10
    assert recipe("voc2012", "role", "linear", protocol("role")).settings["drop_last"] is True
    assert recipe("voc2012", "role", "linearinit", protocol("role")).settings["epochs"] == 5
    assert recipe("voc2012", "role", "linearinit", OURS).settings["epochs"] == 10
    searched = {name: each.search for name, each in PROTOCOLS.items()}  # as their texts say; GR's gives no grid
    assert searched["role"] == ("linear", "finetune", "linearinit")
    assert searched["em"] == ("finetune", "linearinit")
    assert (searched["lasd"], searched["gr"]) == (("finetune",), ())
    assert [PROTOCOLS[name].runs for name in ("role", "em", "lasd")] == [1, 3, 10]
    for name, words in {"role": "scraped anew", "em": "official release", "lasd": "not said"}.items():
        assert words in str(PROTOCOLS[name])
    for each in PROTOCOLS.values():
        assert each.name in str(each)
        assert each.draw in str(each)


def test_wrong_names_are_answered() -> None:
    with pytest.raises(ValueError, match="did you mean 'onelabel'"):
        protocol("onelable")
    with pytest.raises(ValueError, match="no variant 'softer'; it has"):
        recipe("voc2012", "em-apl:softer", "finetune", OURS)
    with pytest.raises(ValueError, match="expected linear, finetune, linearinit"):
        recipe("voc2012", "em", "frozen", OURS)


def test_unknown_dataset_takes_the_defaults() -> None:
    assert recipe("mine", "em", "finetune", OURS).hyper == {}
    assert recipe("mine", "lasd", "linear", OURS).hyper == {"alpha": 0.0}  # or it could be no probe
    assert recipe("mine", "gr:robust", "finetune", OURS).hyper["b"] == -1000


def test_a_wheel_holds_the_recipes() -> None:
    """What setuptools would pack, by its own rules."""
    from setuptools import Distribution
    from setuptools.config.pyprojecttoml import apply_configuration

    root = Path(bench.__file__).parents[3]
    distribution = apply_configuration(Distribution({"src_root": str(root)}), root / "pyproject.toml")
    patterns = distribution.package_data["onelabel"]
    packed = {path for pattern in patterns for path in (root / "src" / "onelabel").glob(pattern)}
    assert set(FOLDER.rglob("*.toml")) <= packed
    assert {FOLDER.parent / "published.csv", FOLDER.parent / "anchors.csv"} <= packed
