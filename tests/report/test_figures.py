"""Every figure plots what it says: the data in the axes against an independent derivation."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

import onelabel
from onelabel.bench.results import read
from onelabel.report import figures, style
from onelabel.report.draw import draw, listed
from onelabel.report.figures import FIGURES, entry
from onelabel.report.figures.epochs import LIMITS, phases, pooled_distance, quantiles, score_columns
from onelabel.report.figures.outcomes import expected_share, pseudo_label_of, share_by_confidence
from onelabel.report.figures.surface import filter_directions, kept_surface, loss_surface, run_surface
from onelabel.report.figures.sweeps import found_sweeps, observed_labels
from onelabel.report.pictures import several
from onelabel.report.runs import read_runs
from onelabel.report.sections import figure_sections

scipy_stats = pytest.importorskip("scipy.stats")


def lines(fig: Any, panel: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    made = {}
    for line in fig.axes[panel].lines:
        made[line.get_label()] = (np.asarray(line.get_xdata()), np.asarray(line.get_ydata()))
    for container in fig.axes[panel].containers:
        if hasattr(container, "lines"):
            data = container.lines[0]
            made[container.get_label()] = (np.asarray(data.get_xdata()), np.asarray(data.get_ydata()))
    return made


def bars(fig: Any, number: int = 0) -> np.ndarray:
    return np.array([patch.get_height() for patch in fig.axes[0].containers[number]])


# -- methods -----------------------------------------------------------------------------------------------------------


def test_curves_of_em_and_gr_are_the_papers() -> None:
    g = np.linspace(-5, 5, 41)
    p = 1 / (1 + np.exp(-g))
    em = figures.entry_curve(onelabel.method("em", alpha=0.2), 0, g)
    np.testing.assert_allclose(em.gradient, 0.2 * g * p * (1 - p), atol=1e-12)
    np.testing.assert_allclose(em.loss, 0.2 * (p * np.log(p) + (1 - p) * np.log(1 - p)), atol=1e-12)
    start, end = (figures.entry_curve("gr", 0, g, epoch=when) for when in ("start", "end"))
    assert not np.allclose(start.gradient, end.gradient)
    w, b, mu, sigma, q2 = 2.0, -2.0, 0.8, 0.5, 0.01
    k, v = 1 / (1 + np.exp(-(w * p + b))), np.exp(-((p - mu) ** 2) / (2 * sigma**2))
    np.testing.assert_allclose(end.gradient, v * ((1 - k) * (1 - p) * p - k * p**q2 * (1 - p)), atol=1e-12)


def test_curves_figure_plots_them() -> None:
    fig = figures.curves(["an", "em"], over="p", what="gradient", epoch="end")
    x, y = lines(fig, 1)["AN"]
    np.testing.assert_allclose(y, x, atol=1e-9)  # ∂(−log(1−p))/∂g = p
    x, y = lines(fig, 0)["EM"]
    np.testing.assert_allclose(y, x - 1, atol=1e-9)
    fig = figures.curves({"a": onelabel.method("gr", q3=0.5), "b": onelabel.method("gr", q3=1.5)}, signs=["unknown"])
    assert set(lines(fig)) >= {"a", "b"}
    assert fig.axes[0].lines[0].get_color() == fig.axes[0].lines[1].get_color()


@pytest.mark.parametrize("name", onelabel.list_methods())
def test_every_element_wise_method_has_curves(name: str) -> None:
    if figures.has_curve(name):
        for sign in (1, 0, -1):
            curve = figures.entry_curve(name, sign, [-50.0, -1.0, 0.0, 1.0, 50.0], epoch="end")
            assert np.isfinite(curve.loss).all()
            assert np.isfinite(curve.gradient).all()
    else:
        with pytest.raises(ValueError, match="not a function of one entry"):
            figures.curves([name])


# -- recordings --------------------------------------------------------------------------------------------------------


def test_positive_loss_and_learning_curves(runs: list[Any]) -> None:
    fig = figures.positive_loss(runs)
    for run in runs:
        np.testing.assert_array_equal(lines(fig)[run.label][1], run.recording.positive_loss)
    fig = figures.learning_curves(runs)
    for run in runs:
        np.testing.assert_array_equal(lines(fig)[run.label][1], [row["validation_mAP"] for row in run.history])
    fig = figures.apl_variants(runs[:2], warmup=2)
    assert fig.axes[0].get_xlim()[0] == 2


@pytest.mark.parametrize(
    ("names", "begun"),
    [
        (["linear", "linear", "finetune", "student", "student"], {2.5: "fine-tuning", 3.5: "student"}),
        (["linear", "student"], {1.5: "student"}),
        (["finetune"] * 3, {}),
    ],
)
def test_curves_say_where_a_phase_begins(names: list[str], begun: dict[float, str]) -> None:
    history = [{"phase": name, "epoch": i, "validation_mAP": 50.0 + i} for i, name in enumerate(names)]
    run = SimpleNamespace(history=history)
    _, ax = style.canvas()
    phases(ax, [SimpleNamespace(history=[]), run])
    assert {
        float(np.asarray(line.get_xdata())[0]): text.get_text() for line, text in zip(ax.lines, ax.texts, strict=True)
    } == begun
    assert len(ax.lines) == len(begun)


def test_heatmap_columns_are_normalised_histograms(runs: list[Any]) -> None:
    partial = runs[:4]
    fig = figures.heatmap(partial)
    for ax, run in zip(fig.axes, partial, strict=False):
        drawn = ax.images[0].get_array()
        counts = run.recording.by_p("unknown positive").sum(1)  # epochs×100
        expected = np.stack([c.reshape(50, 2).sum(1) / c.sum() for c in counts], axis=1)
        np.testing.assert_allclose(np.ma.filled(drawn, 0), expected)
        assert (np.ma.getmaskarray(drawn) == (expected == 0)).all()
        np.testing.assert_allclose(score_columns(run.recording, "unknown positive").sum(0), 1)


def test_quantiles_are_those_of_the_values() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0.3, 2, 20_000)
    counts = np.histogram(values, LIMITS)[0][None]
    found = quantiles(counts, (0.25, 0.5, 0.75))[0]
    np.testing.assert_allclose(found, np.quantile(values, (0.25, 0.5, 0.75)), atol=0.03)
    found = quantiles(counts, (0.25, 0.5, 0.75), absolute=True)[0]
    np.testing.assert_allclose(found, np.quantile(np.abs(values), (0.25, 0.5, 0.75)), atol=0.03)
    assert np.isnan(quantiles(counts * 0, (0.5,))).all()


def test_groups_by_epoch(runs: list[Any]) -> None:
    partial = runs[:2]
    for name, first in (("logits_by_group", "unknown positive"), ("scores_by_group", "observed positive")):
        fig = getattr(figures, name)(partial)
        for panel, run in enumerate(partial):
            x, y = lines(fig, panel)[first]
            middle = quantiles(run.recording.counts(first).sum(1), (0.5,), absolute=name.startswith("logits"))[:, 0]
            middle = middle if name.startswith("logits") else 1 / (1 + np.exp(-middle))
            assert x.tolist() == [1, 2, 3]
            np.testing.assert_allclose(y, middle)


def test_distance_by_epoch_is_scipys(runs: list[Any]) -> None:
    run = runs[1]
    fig = figures.wasserstein_epochs([run])
    middles = (np.arange(100) + 0.5) / 100
    yes, no = (run.recording.by_p(f"unknown {sign}").sum(1) for sign in ("positive", "negative"))
    expected = [scipy_stats.wasserstein_distance(middles, middles, a, b) for a, b in zip(yes, no, strict=True)]
    np.testing.assert_allclose(lines(fig)["EM"][1], expected, atol=1e-12)
    np.testing.assert_allclose(pooled_distance(run.recording), expected, atol=1e-12)


def test_false_negative_share_and_its_curves(runs: list[Any]) -> None:
    run = runs[2]
    fig = figures.false_negative_share([run])
    yes, no = (run.recording.by_p(f"unknown {sign}")[-1].sum(0) for sign in ("positive", "negative"))
    share, total = share_by_confidence(run.recording, -1)
    for i in range(100):
        assert total[i] == yes[i] + no[i]
        assert np.isnan(share[i]) if total[i] == 0 else share[i] == yes[i] / total[i]
    drawn = fig.axes[0].collections[1].get_offsets()
    np.testing.assert_allclose(np.ma.filled(drawn[:, 1], np.nan), share)
    k = run.labels["train"].true.sum() / len(run.labels["train"].true)
    x, y = lines(fig)[f"Eq. 6, k = {k:.2f}"]
    a = 1 / k
    np.testing.assert_allclose(y, (1 - a) * x / (1 - a * x))
    np.testing.assert_allclose(expected_share([0, 1], 2.0), [0, 1])
    x, y = lines(fig)["k̂ at the end"]  # the schedule's end: w = 2, b = −2
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-(2 * x - 2))), rtol=1e-6)
    np.testing.assert_allclose(pseudo_label_of(run, 0, [0.3]), 1 / (1 + np.exp(2)), rtol=1e-6)
    assert pseudo_label_of(runs[0], 0, [0.3]) is None


def test_predictive_values_of_the_best_epoch_are_the_metrics_rooms(runs: list[Any]) -> None:
    from onelabel.metrics import ppv_npv

    run = runs[1]
    best = run.result["best_epoch"]
    fig = figures.predictive_values([run], tau=0.6)
    scores, true = run.judged("validation")
    expected = ppv_npv(np.asarray(scores, np.float64), true, 0.6)
    for panel, value in enumerate(expected):
        assert lines(fig, panel)["EM, τ = 0.6"][1][best] == pytest.approx(float(value), abs=1e-9)


# -- classes -----------------------------------------------------------------------------------------------------------


def test_shares_and_counts_per_class(runs: list[Any]) -> None:
    run = runs[0]
    z, y = run.labels["train"].observed, run.labels["train"].true
    missing = np.array([sum(int(z[i, c] == 0 and y[i, c] == 1) for i in range(len(z))) for c in range(10)])
    seen = (z > 0).sum(0)
    order = np.argsort(-(missing + seen), kind="stable")
    fig = figures.class_counts(runs)
    np.testing.assert_array_equal(bars(fig, 0), seen[order])
    np.testing.assert_array_equal(bars(fig, 1), missing[order])
    assert [t.get_text() for t in fig.axes[0].get_xticklabels()] == [run.class_names[c] for c in order]
    share = 100 * missing / (z == 0).sum(0)
    fig = figures.unknown_shares(runs)
    np.testing.assert_allclose(bars(fig, 0), np.sort(share)[::-1])
    np.testing.assert_allclose(bars(fig, 0) + bars(fig, 1), 100)


def test_improvement_is_the_difference_of_aps(runs: list[Any]) -> None:
    before, after = runs[0], runs[1]
    fig = figures.class_improvement([before, after])
    true = before.true("test")
    aps = [
        np.array([average_precision_score(true[:, c], np.asarray(run.scores("test"))[:, c]) for c in range(10)])
        for run in (before, after)
    ]
    np.testing.assert_allclose(bars(fig), np.sort(100 * (aps[1] - aps[0]))[::-1], atol=1e-6)


def test_distances_per_class_are_scipys(runs: list[Any]) -> None:
    fig = figures.wasserstein([runs[0], runs[1]])
    drawn = np.asarray(fig.axes[0].collections[0].get_offsets())
    expected = []
    for run in runs[:2]:
        scores, z, y = run.scores("train"), run.labels["train"].observed, run.true("train")
        each = [[scores[(z[:, c] == 0) & (y[:, c] == v), c] for v in (1, 0)] for c in range(10)]
        expected.append([scipy_stats.wasserstein_distance(*pair) for pair in each])
    np.testing.assert_allclose(drawn, np.array(expected).T, atol=1e-6)


def test_densities_are_of_the_classes_asked_for(runs: list[Any]) -> None:
    fig = figures.densities(runs[:2], part="train", classes=["1", 2], bins=10)
    assert len(fig.axes) == 4
    run, c = runs[1], 2
    z, y = run.labels["train"].observed, run.true("train")
    values = run.scores("train")[(z[:, c] == 0) & (y[:, c] == 1), c]
    expected, _ = np.histogram(values, np.linspace(0, 1, 11), density=True)
    drawn = [patch.get_height() for patch in fig.axes[3].containers[0]]
    np.testing.assert_allclose(drawn, expected)
    with pytest.raises(ValueError, match="'cat' is not a class"):
        figures.densities(runs[:1], classes=["cat"])


# -- landscapes --------------------------------------------------------------------------------------------------------


def test_directions_have_the_norm_of_each_filter() -> None:
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(4, 2)
    )
    made = filter_directions(network, 0)
    for weight, d in zip(network.parameters(), made, strict=True):
        if weight.ndim == 1:
            assert not d.any()
        else:
            for filter_, own in zip(d, weight, strict=True):
                assert filter_.norm().item() == pytest.approx(own.norm().item(), rel=1e-5)


def test_surface_of_a_linear_network_is_a_parabola() -> None:
    """Mean squared logits are quadratic in the weights: three points of a line fix all the others."""
    torch.manual_seed(0)
    network = torch.nn.Linear(5, 3, bias=False)
    before = network.weight.detach().clone()
    inputs = torch.randn(20, 5)
    steps, values = loss_surface(network, inputs, lambda logits: (logits**2).mean(), grid=5)
    assert values[2, 2] == pytest.approx(float((inputs @ before.T).square().mean()), rel=1e-6)
    for row in (*values, *values.T):
        np.testing.assert_allclose(np.polyval(np.polyfit(steps[:3], row[:3], 2), steps), row, rtol=1e-3)
    torch.testing.assert_close(network.weight, before)


@pytest.fixture
def own_folders(run_folders: dict[str, Path], tmp_path: Path) -> list[Path]:
    """Copies of the run folders of AN, EM and ROLE, to write into."""
    return [Path(shutil.copytree(run_folders[name], tmp_path / name)) for name in ("an", "em", "role")]


def test_landscape_of_runs(own_folders: list[Path]) -> None:
    runs = read_runs(own_folders)
    fig = figures.landscape(runs[:2], rows=16, grid=3)
    assert [ax.get_title() for ax in fig.axes] == ["AN", "EM"]
    assert fig.axes[0].get_zlim() == fig.axes[1].get_zlim()
    with pytest.raises(ValueError, match="has memory; give loss='true'"):
        figures.landscape([runs[2]], rows=8, grid=3)
    assert figures.landscape([runs[2]], rows=8, grid=3, loss="true").axes


def test_a_landscape_is_kept_and_belongs_to_its_weights(own_folders: list[Path]) -> None:
    an, em, _ = read_runs(own_folders)
    with pytest.raises(ValueError, match="no landscape was computed yet"):
        figures.landscape([an], kept=True)
    steps, values = run_surface(an, rows=16, grid=3, span=0.5)
    (an.path / "data.json").unlink()  # from now on nothing can be computed
    again = run_surface(an, rows=16, grid=3, span=0.5)
    np.testing.assert_array_equal(again[0], steps)
    np.testing.assert_array_equal(again[1], values)
    with pytest.raises(ValueError, match="its data are not there"):
        run_surface(an, rows=16, grid=3, span=1.0)
    run_surface(em, rows=16, grid=3, span=1.0)
    with pytest.raises(ValueError, match="other settings than that of"):
        figures.landscape([an, em], kept=True)
    drawn = figures.landscape([an], kept=True).axes[0]
    assert drawn.get_zlim()[1] == pytest.approx(values.max() - values.min())
    assert list(drawn.get_xticks()) == [-0.5, 0, 0.5]
    titles = [f["name"] for section in figure_sections([an]) for f in section["figures"]]
    assert "landscape" in titles
    weights = an.path / "weights-best.safetensors"
    os.utime(weights, (weights.stat().st_atime, (an.path / "landscape.safetensors").stat().st_mtime + 5))
    assert kept_surface(an.path) is None
    (em.path / "landscape.safetensors").write_bytes(b"{")
    with pytest.raises(ValueError, match="safetensors: not the landscape of a run"):
        kept_surface(em.path)


def test_gallery_shows_pictures_and_bars(runs: list[Any]) -> None:
    fig = figures.gallery(runs[:2], count=3)
    assert sum(len(ax.images) for ax in fig.axes) == 3
    panels = [ax for ax in fig.axes if ax.patches]
    rows = several(runs[0].true("test"), 60, 3)
    for ax, row in zip(panels, rows, strict=True):
        names = [text.get_text() for text in ax.get_yticklabels()]
        assert {runs[0].class_names[c] for c in np.flatnonzero(runs[0].true("test")[row])} <= set(names)
        expected = [run.scores("test")[row, run.class_names.index(name)] for run in runs[:2] for name in names]
        np.testing.assert_allclose([patch.get_width() for patch in ax.patches], expected)


# -- results -----------------------------------------------------------------------------------------------------------


def test_sweeps_are_means_over_seeds(results: Path) -> None:
    rows = [row for row in read(results) if row.plan == "sweep:em.alpha"]
    assert len(rows) == 12
    fig = figures.sweep(rows, hyper="alpha")
    x, y = lines(fig)["EM"]
    for alpha, value in zip(x, y, strict=True):
        assert value == pytest.approx(np.mean([r.test_map for r in rows if r.hyper["alpha"] == alpha]))
    assert x.tolist() == [0.01, 0.02, 0.1, 0.2, 0.4, 0.9]


def test_a_second_setting_gives_lines(results: Path) -> None:
    rows = [row for row in read(results) if row.plan == "sweep:gr.mu"]
    fig = figures.sweep(rows, hyper="mu", by="sigma")
    assert set(lines(fig)) >= {"GR, σ = 0.1", "GR, σ = 0.5", "GR, σ = 1"}
    x, y = lines(fig)["GR, σ = 0.5"]
    mine = [r for r in rows if r.hyper["sigma"] == 0.5 and r.hyper["mu"] == x[1]]
    assert y[1] == pytest.approx(np.mean([r.test_map for r in mine]))


def test_of_several_cells_the_best_validated_is_taken(results: Path) -> None:
    from dataclasses import replace

    rows = [row for row in read(results) if row.plan == "sweep:em.alpha"]
    worse = [replace(r, settings={**r.settings, "lr": 1.0}, validation_map=0.0, test_map=99.0) for r in rows]
    one, two = (lines(figures.sweep(given, hyper="alpha"))["EM"][1] for given in (rows, rows + worse))
    np.testing.assert_array_equal(one, two)


def test_runs_of_other_draws_shares_modes_and_data_are_lines_of_their_own(results: Path) -> None:
    from dataclasses import replace

    rows = [row for row in read(results) if row.plan == "sweep:em.alpha"]

    def drawn(given: Any) -> dict[str, Any]:
        return {name: y for name, (_, y) in lines(figures.sweep(given, hyper="alpha")).items() if name.startswith("EM")}

    plain = drawn(rows)["EM"]
    for other, name in (
        ({"draw": "biased:1:1200"}, "EM, biased:1:1200"),
        ({"fraction": 0.5}, "EM, 50% of the rows"),
        ({"mode": "finetune"}, "EM, finetune"),
        ({"dataset": "mine"}, "EM, mine"),
    ):
        more = [replace(r, test_map=99.0, validation_map=99.0, **other) for r in rows]
        both = drawn(rows + more)
        assert set(both.pop(name)) == {99.0}
        (rest,) = both.values()
        np.testing.assert_array_equal(rest, plain)
        one = [r for r in more if r.hyper["alpha"] == 0.2]  # no sweep of its own
        np.testing.assert_array_equal(drawn(rows + one)["EM"], plain)
        assert set(drawn(one)["EM"]) == {99.0}  # but better than nothing


def _means(line: Any, rows: list[Any], place: Any) -> None:
    """A line's points are the plain means of the results at its places."""
    for x, y in zip(*line, strict=True):
        there = [row.test_map for row in rows if place(row) == pytest.approx(x)]
        assert there
        assert y == pytest.approx(sum(there) / len(there))


def test_k_budget_and_missing(results: Path) -> None:
    rows = read(results)
    by_plan = {name: [r for r in rows if r.plan == f"sweep:{name}"] for name in ("role.k", "images", "missing")}
    middle = by_plan["role.k"][0].hyper["expected_positives"]
    fig = figures.k_sensitivity(by_plan["role.k"], true_k=middle)
    assert len(lines(fig)["ROLE"][0]) == 10
    _means(lines(fig)["ROLE"], by_plan["role.k"], lambda row: row.hyper["expected_positives"])
    assert fig.axes[0].patches
    fig = figures.label_budget(by_plan["images"])
    x, _ = lines(fig)["BCE"]
    np.testing.assert_array_equal(x, [10 * round(120 * m / 10) for m in range(1, 11)])
    np.testing.assert_array_equal(lines(fig)["EM"][0], x / 10)
    mine = [row for row in by_plan["images"] if row.label == "em"]
    _means(lines(fig)["EM"], mine, lambda row: row.rows["train"])
    assert observed_labels(by_plan["images"][0]) is not None
    fig = figures.missing_fraction(by_plan["missing"])
    np.testing.assert_allclose(lines(fig)["EM"][0], [10, 30, 50, 70, 90])
    mine = [row for row in by_plan["missing"] if row.label == "em"]
    _means(lines(fig)["EM"], mine, lambda row: 100 * float(row.draw.split(":")[1]))
    found = {name for name, *_ in found_sweeps(rows)}
    assert found == {"sweep", "k-sensitivity", "label-budget", "missing-fraction"}
    with pytest.raises(ValueError, match="no result has a setting 'beta'"):
        figures.sweep(rows, hyper="beta")


# -- the register and the command --------------------------------------------------------------------------------------


def test_every_figure_of_the_papers_is_there() -> None:
    numbers = {
        "EM": "2a 2b 2c 3a 3b 4a 4b 4c 5a 5b 5c 6 7 8 9 10 11",
        "GR": "1a 1b 2 3a 3b 3c 4 5",
        "LASD": "1 2",
        "ROLE": "1 2 A1",
    }
    wanted = {f"{paper} {number}" for paper, each in numbers.items() for number in each.split()}
    said = {paper.strip() for e in FIGURES.values() for paper in e.papers.replace(";", ",").split(",")}
    assert wanted <= said
    golden = {path.stem for path in (Path(__file__).parents[2] / "docs" / "figures").glob("*.png")}
    for name in FIGURES:
        assert any(stem == name or stem.startswith(f"{name}-") for stem in golden), name


@pytest.mark.parametrize(
    ("name", "options"), [("curves", {"over": "p"}), ("heatmap", {}), ("sweep", {"hyper": "alpha"})]
)
def test_drawing_by_name(
    name: str, options: dict[str, Any], run_folders: dict[str, Path], results: Path, tmp_path: Path
) -> None:
    given = {"methods": ["an", "em"], "runs": [str(run_folders["an"])], "results": [str(results)]}[entry(name).takes]
    target = draw(name, given, tmp_path / "x.svg", **options)
    assert target.read_text(encoding="utf-8").count("<svg") == 1


def test_wrong_words_are_one_line(run_folders: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "x.svg"
    with pytest.raises(ValueError, match="there is no figure 'heatmapp'; did you mean 'heatmap'"):
        draw("heatmapp", [], out)
    with pytest.raises(TypeError, match="figure 'heatmap' has no setting 'x'; it takes group, part"):
        draw("heatmap", [str(run_folders["an"])], out, x=1)
    with pytest.raises(ValueError, match="is drawn from RUN…: none given; a run is a folder that `onelabel train`"):
        draw("heatmap", [], out)
    with pytest.raises(FileNotFoundError, match="no run there"):
        draw("heatmap", [str(tmp_path)], out)
    with pytest.raises(ValueError, match="every label of its train part was observed"):
        draw("heatmap", [str(run_folders["bce"])], out)
    assert not out.exists()


def test_an_error_about_a_part_names_the_parts_there_are(run_folders: dict[str, Path], tmp_path: Path) -> None:
    for name in ("densities", "gallery", "heatmap", "predictive-values", "unknown-shares"):
        with pytest.raises(ValueError, match=r"--set part=(\w+) \(part='\1'\) takes another, of train") as told:
            draw(name, [str(run_folders["an"])], tmp_path / "x.svg", part="dev")
        part = str(told.value).split("part='")[1].split("'")[0]
        assert draw(name, [str(run_folders["an"])], tmp_path / f"{name}.svg", part=part).is_file()
    (run,) = read_runs([run_folders["an"]])
    known = run.labels
    vars(run)["labels"] = {name: replace(part, true=None) for name, part in known.items() if name != "test"}
    with pytest.raises(ValueError, match=r"it has no test part; train with -o complete=true where .* learning-curves"):
        run.judged("test")
    with pytest.raises(ValueError, match="nobody knows the true labels of its train part; train with -o"):
        figures.unknown_shares([run])


def test_a_setting_that_a_figure_needs_is_named(results: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"figure 'sweep' needs the setting hyper: --set hyper=VALUE"):
        draw("sweep", [str(results)], tmp_path / "x.svg")
    with pytest.raises(ValueError, match="no result has a setting 'x'; `onelabel bench DATA --sweep NAME` makes them"):
        draw("sweep", [str(results)], tmp_path / "x.svg", hyper="x")


def test_listing() -> None:
    assert {row["name"] for row in json.loads(listed(as_json=True))} == set(FIGURES)
    assert len(listed().splitlines()) == len(FIGURES)
