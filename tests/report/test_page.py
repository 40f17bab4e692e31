"""The page: whole, self-contained, escaped, and readable in a real browser whatever the classes are called."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from browsing import Reader, check_in_a_browser, fits

from onelabel.cli import main
from onelabel.data import FeatureDataset, Splits
from onelabel.labels import Labels
from onelabel.report import write_report
from onelabel.report.choice import main_run
from onelabel.report.examples import drawn
from onelabel.report.figures.epochs import learning_curves
from onelabel.report.numbers import class_rows, headline, missing_labels, next_steps
from onelabel.report.page import chance, facts
from onelabel.report.runs import read_run, read_runs
from onelabel.training import train

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "קטגוריה של חתולים",
    "صورة قطة كبيرة جدا",
    "an-extremely-long-class-name-without-any-space-" * 6,
    "$\\frac{a}{b}$ {{ 7 * 7 }}",
    "a & b\x00\x1f",
    "ordinary",
]
MANY = [f"class {i}" for i in range(1000)]


def synthetic(
    folder: Path, names: list[str], *, truth: bool = True, methods: tuple[str, ...] = ("an", "em")
) -> list[Path]:
    """Linear runs on made-up features of some classes."""
    rng = np.random.default_rng(0)
    classes = len(names)
    weight = rng.normal(size=(8, classes))
    parts: dict[str, Any] = {}
    for part, rows in (("train", 60), ("validation", 30), ("test", 40)):
        X = rng.normal(size=(rows, 8)).astype(np.float32)
        level = X @ weight
        true = (level > np.sort(level, 1)[:, [max(classes - 3, 0)]]).astype(np.uint8)
        true[np.arange(rows), level.argmax(1)] = 1
        observed = Labels.from_classes(level.argmax(1), num_classes=classes, class_names=names)
        parts[part] = FeatureDataset(f"made/{part}", tuple(names), X, observed, true if truth else None)
    for method in methods:
        settings = {"mode": "linear", "epochs": 2, "lr": 1e-2, "device": "cpu", "logger": "none"}
        train(Splits("made", **parts), method=method, out=folder / method, **settings)
    return [folder / method for method in methods]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONELABEL_QUIET", "1")


@pytest.fixture(scope="module")
def recovered(run_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The missing labels of the runs' training set, as `onelabel recover` writes them."""
    from material import TINY

    from onelabel.data import load_dataset
    from onelabel.recovery import recover

    part = load_dataset("digits-scenes", **TINY).train
    scores = np.load(run_folders["em"] / "scores-train.npy").astype(np.float64)
    logits = np.log(scores) - np.log1p(-scores)
    target = tmp_path_factory.mktemp("recovered") / "recovered.parquet"
    labels = Labels(part.observed.indptr, part.observed.indices, part.observed.values, 10, list(part.class_names))
    recover(None, labels, target, scores=logits, examples=[str(p) for p in part.source.paths], top=10)
    return target


@pytest.fixture(scope="module")
def page(run_folders: dict[str, Path], recovered: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole report of all runs."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "board.csv").write_text("method,lr,clean\nem,0.01,0.71\nan,<b>0.01</b>,\n")
    return write_report(list(run_folders.values()), folder, recovered=recovered, leaderboard=folder / "board.csv")


def test_it_is_one_file_without_a_network(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert page.name == "report.html"
    assert [p.name for p in page.parent.iterdir() if p.name.startswith(".")] == []
    read = Reader(text)
    for tag, attrs in read.tags:
        for name in ("src", "href", "xlink:href", "action", "data", "poster"):
            value = attrs.get(name) or "#"
            assert value.startswith(("#", "data:")), (tag, name, value[:80])
        assert tag not in ("iframe", "object", "embed", "base", "form")
    assert not re.findall(r"url\((?!#|\"#|'#)[^)]{1,60}", text)
    assert "@import" not in text
    assert len(text) < 3_000_000


def test_what_it_says_is_what_the_runs_say(page: Path, runs: list[Any]) -> None:
    text = re.sub(r"\s+", " ", " ".join(Reader(page.read_text(encoding="utf-8")).text))
    best = main_run(runs)
    assert not best.full
    for run in runs:
        assert run.label in text
        assert f"{run.result['test_mAP']:.1f}" in text
    for words in (
        "digits-scenes: 5 runs",
        "120 train, 40 validation, 60 test",
        "over AN",
        "What to do next",
        "Leaderboard",
    ):
        assert words in text
    assert "full labels (BCE)" in text
    assert "onelabel review" in text
    assert "onelabel audit plan" in text


def test_each_run_has_its_own_network(tmp_path: Path, run_folders: dict[str, Path]) -> None:
    """Pictures seen at different sizes, by a head alone too; features have no size."""
    from material import TINY, make_runs

    linear = make_runs(tmp_path, {**TINY, "size": 24}, ["em"], mode="linear", epochs=1)["em"]
    found = dict(facts(read_runs([run_folders["an"], run_folders["gr"], linear]), None, None))
    assert found["Network of AN, GR"] == "small-cnn, finetune, 16 px, 3 epochs, batch 32"
    assert found["Network of EM"] == "small-cnn, linear, 24 px, 1 epoch, batch 32"
    found = dict(facts(read_runs(synthetic(tmp_path / "features", ["a", "b", "c"])), None, None))
    assert found["Network"] == "a head on features, linear, 2 epochs, batch 16"


def test_the_best_epoch_is_its_phases(tmp_path: Path) -> None:
    """A teacher's or its student's: named, and ringed where the curve of all phases has it."""
    (folder,) = synthetic(tmp_path, ["a", "b", "c"], truth=False, methods=("roll-call",))
    run = read_run(folder)
    assert [row["phase"] for row in run.history] == ["linear"] * 2 + ["student"] * 2
    for phase, words, first in (("linear", "the linear phase", 1), ("student", "the student", 3)):
        other = replace(run, result={**run.result, "best_phase": phase, "best_epoch": 1})
        told = headline([other])[0]
        assert (told["epoch"], told["phase"], told["place"], told["epochs"]) == (2, words, first + 1, 4)
        for metric in ("validation_mAP", "validation_likelihood"):
            line, ring = (line for line in learning_curves([other], metric=metric).axes[0].lines[:2])
            assert list(ring.get_xdata()) == [first + 1]
            assert list(ring.get_ydata()) == [line.get_ydata()[first]]
            assert ring.get_markersize() > line.get_markersize()
    text = re.sub(r"\s+", " ", " ".join(Reader(write_report([folder], tmp_path / "x.html").read_text("utf-8")).text))
    assert re.search(r"\d of the (student|linear phase) \d of 4 in all", text)
    assert "Likelihood of validation's observed labels by epoch" in text
    with pytest.raises(ValueError, match=r"'validation_x', which no metrics\.jsonl has; expected one of loss, val"):
        learning_curves([run], metric="validation_x")


def test_how_examples_were_drawn(page: Path, tmp_path: Path) -> None:
    def said(target: Path) -> str:
        text = re.sub(r"\s+", " ", " ".join(Reader(target.read_text(encoding="utf-8")).text))
        return text[text.index("Drawn at random") :].partition(" observed ")[0]

    assert said(page) == "Drawn at random among examples with several labels, not chosen."
    target = write_report(synthetic(tmp_path / "a", ["a", "b", "c"], truth=False), tmp_path / "a.html")
    assert said(target) == "Drawn at random, not chosen."
    target = write_report(synthetic(tmp_path / "b", ["only"]), tmp_path / "b.html")
    assert said(target) == "Drawn at random, not chosen."
    shown = [SimpleNamespace(part="train", crowded=False), SimpleNamespace(part="test", crowded=True)]
    assert drawn(shown) == "Drawn at random, those of test among examples with several labels, not chosen."


def test_no_probability_is_called_certain() -> None:
    assert [chance(p) for p in (0.0, 0.0049, 0.005, 0.5, 0.9949, 0.995, 1.0)] == [
        "<0.01", "<0.01", "0.01", "0.50", "0.99", ">0.99", ">0.99",
    ]  # fmt: skip


def test_pictures_are_there(page: Path) -> None:
    images = [attrs for tag, attrs in Reader(page.read_text(encoding="utf-8")).tags if tag == "img"]
    assert len(images) >= 12
    assert all((attrs["src"] or "").startswith("data:image/jpeg;base64,") for attrs in images)


def test_headline_numbers_and_intervals(runs: list[Any]) -> None:
    rows = headline(runs)
    for row in rows:
        run = row["run"]
        assert row["test"] == pytest.approx(run.result["test_mAP"], abs=1e-4)  # every class has positives here
        assert row["interval"].low < row["test"] < row["interval"].high + 5
        assert (row["gain"] is None) == (run.method == "an")
        assert (row["recovery"] is None) == run.full
    an, em = rows[0], rows[1]
    assert em["gain"].value == pytest.approx(em["test"] - an["test"])
    assert sum(row["best"] for row in rows) == 1


def test_class_rows(runs: list[Any], recovered: Path) -> None:
    from onelabel.recovery.table import RecoveredFile

    file = RecoveredFile.open(recovered)
    rows = class_rows(runs, file)
    best = main_run(runs)
    told = {row["name"]: row for row in file.about["classes"]}
    for c, row in enumerate(rows):
        assert row["observed"] == int((best.labels["train"].observed[:, c] > 0).sum())
        assert row["true"] == int(best.true("train")[:, c].sum())
        assert row["recovered"] == told[row["name"]]["called"]
        assert row["threshold"] == told[row["name"]]["threshold"]
        assert row["gain"] == pytest.approx(row["ap"] - 100 * runs[0].test_ap[c])


def test_missing_labels_are_unknown_and_sorted(runs: list[Any], recovered: Path) -> None:
    from onelabel.recovery.table import RecoveredFile

    best = main_run(runs)
    z = best.labels["train"].observed
    for file in (None, RecoveredFile.open(recovered)):
        found = missing_labels(best, file)
        p = [item["p"] for item in found]
        assert p == sorted(p, reverse=True)
        assert all(z[item["row"], best.class_names.index(item["class"])] == 0 for item in found)
        per_class = [sum(other["class"] == item["class"] for other in found) for item in found]
        assert max(per_class, default=0) <= 3


def test_next_steps_depend_on_what_is_there(runs: list[Any]) -> None:
    alone = next_steps(runs[:1], class_rows(runs[:1], None), None, "my photos/")
    commands = [step["command"] for step in alone]
    assert "onelabel compare 'my photos/' --backbone small-cnn --size 16" in commands  # as the run saw them
    assert any(command.startswith("onelabel recover") for command in commands)
    assert not any("review" in command for command in commands)


def test_an_unfinished_run_is_to_be_resumed(runs: list[Any]) -> None:
    begun = replace(runs[0], result={})
    first = next_steps([begun], class_rows([begun], None), None, "photos/")[0]
    assert first == {"text": "AN is not finished: go on with it.", "command": f"onelabel train {begun.path} --resume"}


def test_columns_of_which_nothing_is_known_are_left_out(tmp_path: Path) -> None:
    """As of own pictures, of which nobody knows all labels: they were columns of dashes."""
    (full,) = synthetic(tmp_path / "known", ["a", "b", "c"], methods=("em",))
    (run,) = synthetic(tmp_path / "own", ["a", "b", "c"], truth=False, methods=("em",))
    result = json.loads((run / "result.json").read_text("utf-8"))
    (run / "result.json").write_text(json.dumps({k: v for k, v in result.items() if "test" not in k}))
    known, own = (write_report([each], tmp_path / f"{each.parent.name}.html") for each in (full, run))
    for words in ("test mAP", "unknown labels mAP", "AP (%)", ", on test."):
        assert words in known.read_text("utf-8")
    text = own.read_text("utf-8")
    tables = re.findall(r"<thead><tr>(.*?)</tr>(.*?)</table>", text, re.S)
    assert [re.findall(r">([^<>]+)</th>", head) for head, _ in tables] == [
        ["run", "validation mAP (%)", "validation likelihood", "best epoch", "img/s"],
        ["class", "observed positives", "threshold"],
    ]
    for head, body in tables:
        for row in re.findall(r"<tr.*?</tr>", body, re.S):
            assert len(re.findall(r"<t[dh][ >]", row)) == len(re.findall(r"<th", head))
    assert "test part" not in text


def test_next_steps_name_what_is_close_unfinished_weak_or_lost(runs: list[Any]) -> None:
    an, em = (replace(run, result=dict(run.result)) for run in runs[:2])
    rows = class_rows([an, em], None)
    for row in rows:
        row |= {"ap": 80.0, "gain": 1.0}

    def texts() -> str:
        return " | ".join(f"{s['text']} {s['command']}" for s in next_steps([an, em], rows, None, "photos"))

    an.result |= {"validation_mAP": 70.0}
    em.result |= {"validation_mAP": 70.6, "best_epoch": 1}
    assert not re.search("another seed|Weakest|Worse|more may be better", texts())
    an.result |= {"validation_mAP": 70.2}
    assert f"onelabel train photos --recipe {em.path}/config.toml --seed 1" in texts()
    em.result |= {"best_epoch": 2}
    assert f"onelabel train photos --recipe {em.path}/config.toml --epochs 6" in texts()
    rows[3] |= {"ap": 41.2, "gain": -3.04}
    assert f"Weakest classes: {rows[3]['name']} (AP 41, {rows[3]['observed']} observed)" in texts()
    assert f"Worse than AN on 1 of 10 classes, most on {rows[3]['name']} (−3.0)" in texts()


def test_the_command_to_train_again_is_understood(runs: list[Any]) -> None:
    """A run's config.toml is a recipe."""
    from onelabel.training import TrainConfig
    from onelabel.training.recipes import settings_from

    again = TrainConfig.make(settings_from(runs[1].path / "config.toml", {"epochs": 6}))
    assert again == replace(runs[1].config, epochs=6)


@pytest.mark.parametrize(
    "names", [HOSTILE, ["only"], [f"class {i}" for i in range(1000)]], ids=["hostile", "1", "1000"]
)
def test_any_classes(names: list[str], tmp_path: Path) -> None:
    target = write_report(synthetic(tmp_path, names), tmp_path / "x.html")
    text = target.read_text(encoding="utf-8")
    read = Reader(text)
    assert [tag for tag, _ in read.tags].count("script") == 1
    assert not any(name.startswith("on") for _, attrs in read.tags for name in attrs)
    assert "49" not in [t.strip() for t in read.text if "7 * 7" in t]
    shown = "".join(read.text)
    for name in names[:3]:
        assert name in shown
    assert "no picture" in shown
    rows = sum(tag == "tr" for tag, _ in read.tags)
    assert rows >= len(names)


def test_without_truth(tmp_path: Path) -> None:
    target = write_report(synthetic(tmp_path, ["a", "b", "c"], truth=False), tmp_path / "x.html")
    text = " ".join(Reader(target.read_text(encoding="utf-8")).text)
    assert "in truth" not in text
    assert "What to do next" in text


def test_a_run_under_way_and_one_without_recording(tmp_path: Path) -> None:
    (folder,) = synthetic(tmp_path, ["a", "b", "c"], methods=("em",))
    for name in ("result.json", "recording.safetensors", "labels.safetensors", "scores-test.npy"):
        (folder / name).unlink()
    run = read_run(folder)
    assert run.labels == {}
    assert write_report([folder], tmp_path / "x.html").is_file()


def test_errors_are_one_line(tmp_path: Path, run_folders: dict[str, Path]) -> None:
    with pytest.raises(FileNotFoundError, match="no run there"):
        write_report([tmp_path], tmp_path / "x.html")
    with pytest.raises(ValueError, match="none given"):
        write_report([], tmp_path / "x.html")
    other = synthetic(tmp_path / "other", ["a", "b", "c"], methods=("em",))
    with pytest.raises(ValueError, match="its classes are not those of"):
        read_runs([run_folders["an"], *other])
    with pytest.raises(FileNotFoundError, match="no leaderboard there"):
        write_report(other, tmp_path / "x.html", leaderboard=tmp_path / "no.csv")
    assert not (tmp_path / "x.html").exists()


@pytest.mark.parametrize(
    "name", ["config.toml", "result.json", "metrics.jsonl", "recording.safetensors", "labels.safetensors"]
)
def test_damaged_files_are_one_line(tmp_path: Path, name: str) -> None:
    (folder,) = synthetic(tmp_path, ["a", "b", "c"], methods=("em",))
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2] + b"\x00{")
    with pytest.raises(ValueError, match=re.escape(name)) as caught:
        write_report([folder], tmp_path / "x.html")
    assert "\n" not in str(caught.value)


def test_runs_are_named_apart(tmp_path: Path) -> None:
    base = synthetic(tmp_path, ["a", "b", "c"], methods=("em",))[0]
    import shutil

    for name, change in (("two", ("seed = 0", "seed = 1")), ("three", ("[x]", "[x]"))):
        shutil.copytree(base, tmp_path / name)
        text = (base / "config.toml").read_text().replace(*change)
        (tmp_path / name / "config.toml").write_text(text)
    labels = [run.label for run in read_runs([base, tmp_path / "two", tmp_path / "three"])]
    assert len(set(labels)) == 3
    assert labels[1] == "EM, seed 1"


def test_commands(
    run_folders: dict[str, Path], results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*words: Any) -> str:
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        assert stop.value.code in (0, None)
        return capsys.readouterr().out

    out = call(
        "report",
        run_folders["an"],
        run_folders["em"],
        "--bench",
        results,
        "--out",
        tmp_path / "r.html",
        "--note",
        "n<o>te",
    )
    assert out == f"report: {tmp_path / 'r.html'}\n"
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Benchmark" in text
    assert "n&lt;o&gt;te" in text
    assert json.loads(call("figure", "--list", "--json"))
    out = call("figure", "positive-loss", run_folders["an"], "--out", tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


def test_folders_of_results_alone(results: Path, tmp_path: Path) -> None:
    """The sweeps of one and the table of the other, which holds the project's own results."""
    from onelabel.bench.results import read

    kept = Path(__file__).parents[2] / "docs" / "results" / "bench"
    target = write_report([results, kept], tmp_path / "b.html")
    text = re.sub(r"\s+", " ", " ".join(Reader(target.read_text(encoding="utf-8")).text))
    assert "voc2012, linear" in text
    cells: dict[Any, list[Any]] = {}
    for row in read(kept):
        if (row.dataset, row.label, row.mode, row.draw, row.fraction) == ("voc2012", "an", "linear", "uniform1200", 1):
            cells.setdefault((row.settings["lr"], row.settings["batch_size"]), []).append(row)
    best = max(cells.values(), key=lambda rows: np.mean([row.validation_map for row in rows]))
    values = [row.test_map for row in best]
    assert f" AN {np.mean(values):.2f} ± {np.std(values, ddof=1):.2f} {len(values)} – " in text
    assert len(re.findall("<figure ", target.read_text(encoding="utf-8"))) >= 5
    with pytest.raises(FileNotFoundError, match="no run there"):
        write_report([tmp_path / "nothing"], tmp_path / "x.html")


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_in_a_browser(page: Path, visit: Callable[..., Any], width: int, scheme: str) -> None:
    check_in_a_browser(page, visit, width, scheme)


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [HOSTILE, ["only"], [f"class {i}" for i in range(1000)]], ids=["hostile", "1", "1000"]
)
def test_any_classes_in_a_browser(names: list[str], tmp_path: Path, visit: Callable[..., Any]) -> None:
    target = write_report(synthetic(tmp_path, names), tmp_path / "x.html")
    for width in (1440, 390):
        shown, complaints = visit(target, width)
        fits(shown)
        if len(names) == 1000:
            shown.fill("#class-search", "class 99")
            assert shown.locator("#class-table tbody tr:visible").count() == 11
        assert complaints == []
