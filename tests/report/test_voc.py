"""The report of a whole VOC 2012 fine-tuning on an H200, made anew of their run folders by the code of the day."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import Reader, check_in_a_browser
from sklearn.metrics import average_precision_score
from voc import make_page, unpack

from onelabel.report.choice import main_run
from onelabel.report.runs import RunView, read_runs
from onelabel.report.sections import figure_sections

pytestmark = [pytest.mark.shared, pytest.mark.slow]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> list[Path]:
    return unpack(tmp_path_factory.mktemp("voc"), shared_data)


@pytest.fixture(scope="module")
def views(folders: list[Path]) -> list[RunView]:
    return read_runs(folders)


@pytest.fixture(scope="module")
def page(folders: list[Path], tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Path:
    return make_page(folders, tmp_path_factory.mktemp("page") / "voc.html", shared_data)


def test_it_is_a_whole_fine_tuning(views: list[RunView]) -> None:
    assert "gr" in {view.method for view in views}
    for view in views:
        assert {part: len(labels.observed) for part, labels in view.labels.items()} == {
            "train": 4574, "validation": 1143, "test": 5823,
        }  # fmt: skip
        assert (view.config.mode, view.config.backbone, view.config.size) == ("finetune", "resnet50", 448)
        assert (view.labels["train"].observed > 0).sum(1).tolist() == [1] * 4574
        assert "H200" in view.environment["device"]
        recording = view.recorded()
        assert recording.epochs == len(view.history)
        per_epoch = sum(recording.counts(g).sum((1, 2)) for g in ("observed positive", "unknown"))
        np.testing.assert_array_equal(per_epoch, 4574 * 20)


def test_scores_are_those_of_the_result(views: list[RunView]) -> None:
    for view in views:
        scores, true = view.judged("test")
        own = [average_precision_score(true[:, c], scores[:, c]) for c in range(20)]
        np.testing.assert_allclose(view.test_ap, own, atol=1e-5)
        assert view.result["test_mAP"] == pytest.approx(100 * np.mean(own), abs=0.01)


def test_the_page_says_what_the_runs_say(page: Path, views: list[RunView]) -> None:
    text = re.sub(r"\s+", " ", " ".join(Reader(page.read_text(encoding="utf-8")).text))
    for view in views:
        assert f"{view.label} {view.result['test_mAP']:.1f}" in text
    assert "4,574 train, 1,143 validation, 5,823 test" in text
    assert "voc2012, finetune" in text  # the benchmark's table
    assert main_run(views).method == "gr"
    shown = [figure["name"] for section in figure_sections(views) for figure in section["figures"]]
    assert {"heatmap", "false-negative-share", "predictive-values", "densities", "landscape"} <= set(shown)
    assert len(re.findall(r"<figure ", page.read_text(encoding="utf-8"))) >= len(shown)
    assert page.stat().st_size < 5_000_000


def test_pictures_are_there(page: Path) -> None:
    images = [attrs["src"] or "" for tag, attrs in Reader(page.read_text(encoding="utf-8")).tags if tag == "img"]
    assert len(images) >= 30
    assert len(set(images)) > 24
    assert "no picture" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_in_a_browser(page: Path, visit: Callable[..., Any], width: int, scheme: str) -> None:
    check_in_a_browser(page, visit, width, scheme)
