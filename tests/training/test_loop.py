"""The loop against a plain one written out here, and each of its options against what it is meant to do."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from training_workers import SMALL, scenes

import onelabel
from onelabel.data import FeatureDataset, Splits
from onelabel.labels import Labels
from onelabel.metrics import mean_average_precision
from onelabel.models import Classifier, build_classifier
from onelabel.training import Run, TrainConfig, train
from onelabel.training.ema import Average
from onelabel.training.optim import Rates, classifier_optimizer, schedule_table
from onelabel.training.plan import Plan
from onelabel.training.stopping import should_stop


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    torch.set_num_threads(1)


def classifier(seed: int = 3) -> Classifier:
    torch.manual_seed(seed)
    return build_classifier(10, backbone="small-cnn")


def plain_loop(data: Splits[Any], model: Classifier, name: str, epochs: int, lr: float, **options: Any) -> list[float]:
    """Pictures → loss → Adam, as anyone would write it; gives each epoch's mean loss."""
    accumulate, clip = options.get("accumulate", 1), options.get("clip", 0.0)
    criterion = onelabel.method(name)
    criterion.bind(data.train.observed)
    optimizer = torch.optim.Adam(
        [{"params": model.backbone.parameters(), "lr": lr}, {"params": model.head.parameters(), "lr": 10 * lr}]
    )
    observed = torch.from_numpy(data.train.observed.to_dense())
    pictures = torch.from_numpy(data.train.source.images).permute(0, 3, 1, 2) / 255
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    pictures = (pictures - mean[:, None, None]) / std[:, None, None]
    losses = []
    for epoch in range(epochs):
        plan = Plan.make(
            len(data.train),
            batch_size=16,
            accumulate=accumulate,
            drop_last=False,
            seed=0,
            phase="finetune",
            epoch=epoch,
        )
        criterion.begin_epoch(epoch, epochs)
        model.train()
        total, start = 0.0, 0
        for sizes in plan.updates:
            optimizer.zero_grad()
            for size in sizes:
                rows = plan.order[start : start + size]
                x = pictures[rows].clone()
                x[plan.flips[start : start + size]] = x[plan.flips[start : start + size]].flip(3)
                loss = criterion(model.head(model.backbone(x)), observed[rows])
                (loss * size / sum(sizes)).backward()
                total += float(loss.detach()) * size
                start += size
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
        losses.append(total / start)
    return losses


@pytest.mark.parametrize("options", [{}, {"accumulate": 3, "clip": 0.05}])
def test_equals_a_plain_loop(options: dict[str, Any]) -> None:
    data = scenes()
    ours, theirs = classifier(), classifier()
    settings = {**SMALL, "epochs": 2, "lr": 1e-4, "head_lr_scale": 10.0, "select": "last", **options}
    run = train(data, method="gr", model=ours, **settings)
    losses = plain_loop(data, theirs, "gr", 2, 1e-4, **options)
    assert [row["loss"] for row in run.history] == pytest.approx(losses, rel=1e-4)
    for (name, a), b in zip(run.classifier.state_dict().items(), theirs.state_dict().values(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=3e-4, err_msg=name)


def test_same_seed_same_run_other_seed_another() -> None:
    data = scenes()
    first, again, other = (train(data, method="em", seed=seed, **SMALL).history for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_linear_phase_equals_finetuning_with_a_frozen_backbone() -> None:
    """Without augmentation a frozen backbone gives the linear phase's features."""
    data = scenes()
    linear = train(data, method="em", model=classifier(), **{**SMALL, "mode": "linear"})
    settings = {**SMALL, "freeze_epochs": 3, "augment": "none", "head_lr_scale": 1.0, "seed": 0}
    frozen = train(data, method="em", model=classifier(), **settings)
    before = classifier().backbone.state_dict()
    for name, value in frozen.classifier.backbone.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert linear.history[-1]["loss"] == pytest.approx(frozen.history[-1]["loss"], rel=0.05)


def test_freezing_ends() -> None:
    run = train(scenes(), method="em", model=classifier(), **{**SMALL, "freeze_epochs": 1, "select": "last"})
    before = classifier().backbone.state_dict()
    assert any(not torch.equal(v, before[k]) for k, v in run.classifier.backbone.state_dict().items() if "weight" in k)


def test_head_is_taken() -> None:
    weight, bias = np.zeros((10, 64), np.float32), np.full(10, -3.0, np.float32)
    run = train(scenes(), method="em", head=(weight, bias), **{**SMALL, "mode": "linear", "lr": 1e-12})
    np.testing.assert_allclose(run.scores["test"], 1 / (1 + math.exp(3)), rtol=1e-4)
    with pytest.raises(ValueError, match=r"expected \(10, 64\)"):
        train(scenes(), method="em", head=(weight[:, :5], bias), **SMALL)


def test_linearinit_hands_over_the_best_head_and_roles_best_estimates() -> None:
    """With a learning rate of nothing, fine-tuning ends where the linear phase was best."""
    data = scenes()
    hyper = {"expected_positives": 2.0}
    common = {**SMALL, "augment": "none", "freeze_epochs": 1, "head_lr_scale": 1.0}
    linear = train(data, method="role", hyper=hyper, model=classifier(), **{**common, "mode": "linear", "epochs": 2})
    settings = {**common, "mode": "linearinit", "linear_epochs": 2, "linear_batch_size": 16, "epochs": 1, "lr": 1e-12}
    both = train(data, method="role", hyper=hyper, model=classifier(), **settings)
    assert both.result["test_mAP"] == pytest.approx(linear.result["test_mAP"], abs=1e-6)
    table = next(name for name, value in linear.method_state.items() if value.shape == (149, 10))
    assert torch.allclose(both.method_state[table], linear.method_state[table], atol=1e-5)


def test_features_in_place_of_pictures() -> None:
    data = scenes()
    rng = np.random.default_rng(0)

    def part(p: Any) -> FeatureDataset:
        noisy = (p.true + rng.normal(0, 0.3, p.true.shape)).astype(np.float32)
        return FeatureDataset(p.name, p.class_names, noisy, p.observed, p.true)

    made = Splits("matrix", part(data.train), part(data.validation), part(data.test))
    run = train(made, method="em", **{**SMALL, "mode": "linear", "lr": 0.05, "epochs": 20})
    assert run.result["test_mAP"] > 85
    with pytest.raises(ValueError, match="needs pictures"):
        train(made, method="em", **{**SMALL, "mode": "finetune"})
    assert train(made, **{**SMALL, "epochs": 1}).config.mode == "linear"  # where none is named


def test_measurements_in_units_of_their_own(tmp_path: Path) -> None:
    data = scenes()
    rng = np.random.default_rng(0)
    width = data.train.true.shape[1]
    units, zero = 10.0 ** np.linspace(-2, 2, width), np.linspace(-300, 300, width)

    def part(p: Any) -> FeatureDataset:
        noisy = p.true + rng.normal(0, 0.3, p.true.shape)
        return FeatureDataset(p.name, p.class_names, (noisy * units + zero).astype(np.float32), p.observed, p.true)

    made = Splits("matrix", part(data.train), part(data.validation), part(data.test))
    run = train(made, method="em", out=tmp_path / "run", **{**SMALL, "mode": "linear", "lr": 0.05, "epochs": 20})
    assert run.result["test_mAP"] > 85  # as without units, above
    again = Run.load(tmp_path / "run")
    with torch.no_grad():
        found = torch.sigmoid(again.classifier(torch.from_numpy(made.test.X)))
    np.testing.assert_allclose(found, np.load(tmp_path / "run" / "scores-test.npy"), atol=1e-5)
    plain = Splits("plain", *(replace(p, X=((p.X - zero) / units).astype(np.float32)) for p in made.parts.values()))
    alone = train(plain, method="em", **{**SMALL, "mode": "linear", "lr": 0.05, "epochs": 20})
    assert "backbone.centre" not in alone.classifier.state_dict()


def test_average_of_weights_is_the_recursion() -> None:
    module = nn.BatchNorm1d(2)
    average = Average(module, 0.75)
    expected = torch.ones(2)
    for value in (3.0, -1.0, 5.0):
        nn.init.constant_(module.weight, value)
        average.update()
        expected = 0.75 * expected + 0.25 * value
    with average.swapped():
        assert torch.allclose(module.weight, expected)
    assert torch.equal(module.weight, torch.full((2,), 5.0))


def test_schedule() -> None:
    config = TrainConfig(schedule="cosine", warmup_steps=4)
    table = schedule_table(config, 20)
    assert table is not None
    expected = [min(1, (t + 1) / 5) * (1 + math.cos(math.pi * min(max((t - 4) / 16, 0), 1))) / 2 for t in range(21)]
    np.testing.assert_allclose(table.numpy(), expected, atol=1e-6)
    p = nn.Parameter(torch.ones(1))
    optimizer = classifier_optimizer([p], [nn.Parameter(torch.ones(1))], lr=0.1, head_lr_scale=10, weight_decay=0)
    rates = Rates([optimizer], table, torch.device("cpu"))
    rates.move(torch.tensor([2]))
    assert [float(g["lr"]) for g in optimizer.param_groups] == pytest.approx([0.6, 0.06])
    assert schedule_table(TrainConfig(), 20) is None


@pytest.mark.parametrize(
    ("rule", "values", "stops"),
    [
        ("em", [50, 60, 60], True),
        ("em", [50, 60, 61], False),
        ("em", [50], False),
        ("gr", [50, 60, 58.5], False),
        ("gr", [50, 60, 57.9], True),
        (2, [50, 60, 59], False),
        (2, [50, 60, 59, 60], True),
        ("none", [60, 1, 1], False),
    ],
)
def test_stopping(rule: Any, values: list[float], stops: bool) -> None:
    assert should_stop(rule, values) is stops


def test_stops_early_and_keeps_the_best_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([40.0, 50.0, 45.0, 44.0] + [1.0] * 10)
    monkeypatch.setattr("onelabel.training.loop.mean_ap", lambda *_, blind=False, **__: 0.0 if blind else next(values))
    run = train(scenes(), method="em", **{**SMALL, "mode": "linear", "epochs": 9, "stop": "em"})
    assert [row["validation_mAP"] for row in run.history] == [40, 50, 45]
    assert run.result["best_epoch"] == 1
    assert run.result["stopped_early"]


def test_selects_and_stops_without_true_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the likelihood of the observed labels, true ones or not: the same epochs, the same pick."""
    data, settings = scenes(), {**SMALL, "mode": "linear", "epochs": 6, "stop": 2}
    seeing = train(data, method="em", **settings, select="likelihood")
    blind = train(replace(data, validation=replace(data.validation, true=None)), method="em", **settings)
    known, hidden = ([row["validation_likelihood"] for row in run.history] for run in (seeing, blind))
    assert known == hidden
    assert seeing.result["best_epoch"] == blind.result["best_epoch"] == known.index(max(known))
    assert seeing.result["validation_mAP"] != blind.result["validation_mAP"]  # of the observed labels alone
    assert "validation_likelihood" not in train(data, method="em", **settings).history[0]
    values = iter([-2.0, -1.0, -1.5, -1.2])
    monkeypatch.setattr("onelabel.training.loop.draw_likelihood", lambda *_: next(values))
    assert len(train(data, method="em", **settings, select="likelihood").history) == 4


def test_a_likelihood_needs_draws() -> None:
    """Where validation rows have all their labels or none observed, what is left is mAP."""
    data = scenes(n_train=30, n_validation=12, n_test=6)
    pairs = np.zeros((12, data.validation.num_classes), np.int8)
    pairs[:, :2] = 1
    without = replace(data, validation=replace(data.validation, true=None, observed=Labels.from_matrix(pairs)))
    settings = {**SMALL, "mode": "linear", "epochs": 1}
    with pytest.raises(ValueError, match="'likelihood' needs validation rows with exactly one observed positive"):
        train(without, method="em", **settings, select="likelihood")
    assert list(train(without, method="em", **settings).history[0]) == ["phase", "epoch", "loss", "validation_mAP"]


@pytest.mark.parametrize("several", [0, 5])
def test_says_how_many_held_out_rows_are_not_asked(
    several: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONELABEL_QUIET")
    data = scenes(n_train=30, n_validation=12, n_test=6)
    held = data.validation.observed.to_dense()
    held[:] = 0
    held[:, 0] = 1
    held[:several, 1] = 1
    without = replace(data, validation=replace(data.validation, true=None, observed=Labels.from_matrix(held)))
    train(without, method="em", **SMALL, mode="linear")
    told = "; 5 of 12 rows have several and are not asked; if they have all their labels, -o complete=held-out says so"
    assert (told in capsys.readouterr().err) == bool(several)


def test_says_where_the_linear_probe_was_better(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONELABEL_QUIET")
    data = scenes(n_train=40, n_validation=20, n_test=10)
    for lr, wanted in ((10.0, True), (1e-9, False)):  # a rate that ruins what the probe found, and one that keeps it
        settings = {**SMALL, "epochs": 1, "linear_epochs": 6, "linear_batch_size": 8, "lr": lr, "student": "off"}
        run = train(data, **{**settings, "mode": "linearinit", "head_lr_scale": 1.0}, method="em")
        best = max(row["validation_mAP"] for row in run.history if row["phase"] == "linear")
        assert (run.result["validation_mAP"] < best) is wanted
        assert ("fine-tuning ended below its linear probe" in "".join(capsys.readouterr())) is wanted


def test_plan_visits_every_row_once_and_processes_share_it() -> None:
    plan = Plan.make(37, batch_size=8, accumulate=2, drop_last=False, seed=1, phase="linear", epoch=0)
    assert sorted(plan.order.tolist()) == list(range(37))
    assert plan.updates == ((8, 8), (8, 8), (5,))
    assert plan.done == [0, 16, 32, 37]
    shares = [plan.own(1, rank, 2) for rank in (0, 1)]
    assert torch.equal(torch.cat([shares[0][:4], shares[1][:4]]), plan.order[16:24])
    assert set(torch.cat([shares[0][8:], shares[1][8:]]).tolist()) == set(plan.order[32:].tolist())
    cut = Plan.make(37, batch_size=8, accumulate=2, drop_last=True, seed=1, phase="linear", epoch=0)
    assert cut.updates == ((8, 8), (8, 8))
    assert not torch.equal(
        plan.order, Plan.make(37, batch_size=8, accumulate=2, drop_last=False, seed=1, phase="linear", epoch=1).order
    )


def test_config_survives_toml(tmp_path: Path) -> None:
    config = TrainConfig(
        method="gr", hyper={"w": 10.0, "start": {"b": -1.0}, "note": 'a "quoted" word'}, stop=3, ema=0.998, lr=1e-5
    )
    (tmp_path / "config.toml").write_text(config.to_toml(), encoding="utf-8")
    assert TrainConfig.load(tmp_path / "config.toml") == config
    (tmp_path / "config.toml").write_text("method = ", encoding="utf-8")
    with pytest.raises(ValueError, match="not TOML"):
        TrainConfig.load(tmp_path / "config.toml")
    assert TrainConfig(mode="linear").resolved().batch_size == 16
    filled = {"mode": "linearinit", "lr": 1e-5, "epochs": 10, "batch_size": 8, "head_lr_scale": 10.0}
    filled |= {"student_smoothing": 0.0}
    assert TrainConfig().resolved() == replace(TrainConfig(), **filled)


def test_a_student_starts_from_a_probe_of_pretrained_weights() -> None:
    assert TrainConfig().method == "roll-call"
    for settings, mode in (
        ({}, "linearinit"),
        ({"method": "em"}, "finetune"),
        ({"weights": "random"}, "finetune"),
        ({"mode": "finetune"}, "finetune"),
    ):
        assert TrainConfig.make(settings).resolved().mode == mode


def test_the_heads_rate_follows_the_backbones_weights() -> None:
    """Ten times the backbone's where that is pretrained, one rate for all where it starts at random."""
    given: list[tuple[dict[str, Any], float]] = [
        ({}, 10.0), ({"weights": "some.safetensors"}, 10.0), ({"weights": "random"}, 1.0),
        ({"backbone": "small-cnn"}, 1.0), ({"backbone": "small-cnn", "weights": "mine.safetensors"}, 10.0),
        ({"backbone": "small-cnn", "head_lr_scale": 3.0}, 3.0), ({"head_lr_scale": 0.0}, 0.0),
    ]  # fmt: skip
    for settings, scale in given:
        assert TrainConfig.make(settings).resolved().head_lr_scale == scale
    run = train(scenes(), method="em", **{**SMALL, "epochs": 1})
    assert run.config.head_lr_scale == 1


def test_recipe_and_overrides(tmp_path: Path) -> None:
    from onelabel.training.recipes import settings_from

    file = tmp_path / "recipe.toml"
    file.write_text('method = "gr"\nepochs = 8\n[hyper]\nw = 2.0\n')
    assert settings_from(file, {"lr": 0.1}) == {"method": "gr", "epochs": 8, "hyper": {"w": 2.0}, "lr": 0.1}
    assert settings_from(file, {"method": "em"}) == {"method": "em", "epochs": 8}


def test_flip_test_averages_both_ways() -> None:
    data = scenes()
    run = train(data, method="em", flip_test=True, **SMALL)
    with torch.no_grad():
        pictures = torch.from_numpy(data.test.source.images)
        model = run.classifier.eval()
        plain = torch.sigmoid(model(pictures))
        expected = (plain + torch.sigmoid(model(pictures.flip(2)))) / 2
    np.testing.assert_allclose(run.scores["test"], expected.numpy(), atol=1e-6)
    for name, scores in (("test_mAP", plain), ("test_mAP_flip", expected)):
        true = torch.from_numpy(data.test.true)
        assert run.result[name] == pytest.approx(100 * float(mean_average_precision(scores, true)), abs=1e-4)


def test_a_method_that_asks_for_k_is_given_that_of_the_data(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the papers have it; the default, VOC's, only where nobody knows, and then it is said."""
    monkeypatch.delenv("ONELABEL_QUIET", raising=False)
    rng = np.random.default_rng(0)
    true = (rng.random((60, 8)) < 0.5).astype(np.uint8)
    true[:, 0] = 1
    X = rng.standard_normal((60, 5)).astype(np.float32)
    part = FeatureDataset("made", tuple("abcdefgh"), X, onelabel.drop_labels(true), true)
    settings: dict[str, Any] = {"method": "role", "epochs": 1, "device": "cpu", "logger": "none"}
    clean, known = Splits("made", part, None, None), {"expected_positives": pytest.approx(true.sum(1).mean(), abs=1e-4)}
    assert train(clean, **settings).config.hyper == known
    assert train(clean, **settings, hyper={"expected_positives": 2.0}).config.hyper == {"expected_positives": 2.0}
    assert "are expected" not in capsys.readouterr().err
    hidden = replace(part, true=None)
    assert train(Splits("made", hidden, part, None), **settings).config.hyper == known  # validation's
    assert train(Splits("made", hidden, None, None), **settings).config.hyper == {}
    assert "role: 1.5 labels a row are expected; say how many" in capsys.readouterr().err
