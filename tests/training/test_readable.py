"""Pictures that cannot be read take no part in a run, wherever pictures are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from training_workers import SMALL, train_folder, train_folder_as_rank

import onelabel.data.pictures
from onelabel.data import DataError, load_dataset, verify_splits
from onelabel.training import Feed, Run, TrainingError, evaluate, train
from onelabel.training.again import Origin

BAD = {"cat/03.jpg": "cut", "cat/08.jpg": "cut", "dog/05.jpg": "cut", "dog/06.jpg": "empty"}


def colour(name: str) -> int:
    """What the pixels of a picture say of its row: no two are alike, and none is the grey of a lost one."""
    return 20 + 8 * int(Path(name).stem) + (4 if name.startswith("dog") else 0)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve pictures of each of two classes; three end early, one is empty."""
    rng, base = np.random.default_rng(0), tmp_path / "my photos"
    for label in ("cat", "dog"):
        (base / label).mkdir(parents=True)
        for number in range(12):
            name = f"{label}/{number:02d}.jpg"
            pixels = colour(name) + rng.integers(-9, 10, (64, 64, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(base / name, quality=98)
            whole = (base / name).read_bytes()
            if name in BAD:
                (base / name).write_bytes(whole[: len(whole) // 2] if BAD[name] == "cut" else b"")
    return base


def placed(monkeypatch: pytest.MonkeyPatch, placement: str) -> None:
    monkeypatch.setattr(onelabel.data.pictures, "choose_placement", lambda *_, **__: (placement, "as the test asks"))


def names(part: Any) -> list[str]:
    return [str(name) for name in part.source.paths]


@pytest.mark.parametrize("placement", ["host", "stream"])
def test_unreadable_pictures_are_left_out_of_every_part(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], placement: str
) -> None:
    placed(monkeypatch, placement)
    out, seen = tmp_path / "run", {}
    real = Feed.batches

    def batches(feed: Feed, order: torch.Tensor, size: int) -> Any:
        seen[feed.name.rpartition("/")[2]] = feed
        return real(feed, order, size)

    monkeypatch.setattr(Feed, "batches", batches)
    loaded = load_dataset(str(photos), validation=0.4)
    run = train(loaded, method="role", out=out, **{**SMALL, "epochs": 1, "mode": "finetune", "save_scores": True})
    told = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert len(told) == 1
    assert "4 left out (1 empty-file, 3 truncated)" in told[0]
    assert f"`onelabel data check '{photos}'` lists them" in told[0]
    whole = load_dataset(str(photos), validation=0.4, verify="decode")
    assert len(loaded.train) + len(loaded.validation) == 23  # an empty file shows while loading, a cut one does not
    assert len(whole.train) + len(whole.validation) == 20
    for part in ("train", "validation"):
        mine = whole.parts[part]
        assert run.scores[part].shape == np.load(out / f"scores-{part}.npy").shape == (len(mine), 2)
        assert names(seen[part].part) == names(mine)
        assert (seen[part].all_observed().numpy() == mine.observed.to_dense()).all()
        pictures = torch.cat([*real(seen[part], torch.arange(len(mine)), 4)]).float().mean((1, 2, 3))
        assert np.abs(pictures.numpy() - [colour(name) for name in names(mine)]).max() < 3
    assert len(whole.train) in {len(value) for value in run.method_state.values() if value.ndim}  # by row number
    # whoever scores the data again does so on the same rows
    monkeypatch.setattr(Feed, "batches", real)
    again = evaluate(Run.load(out), loaded, part="validation", device="cpu")
    assert again["rows"] == len(whole.validation)
    np.testing.assert_allclose(again["scores"], run.scores["validation"], atol=1e-5)


@pytest.mark.parametrize("placement", ["host", "stream"])
def test_a_run_goes_on_with_the_rows_it_began_with(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, placement: str
) -> None:
    placed(monkeypatch, placement)
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    settings: dict[str, Any] = {**SMALL, "mode": "finetune", "method": "em"}
    train(str(photos), out=tmp_path / "once", **{**settings, "epochs": 1})
    config, state = tmp_path / "once" / "config.toml", next((tmp_path / "once" / "checkpoint").glob("*/state.json"))
    config.write_text(config.read_text().replace("epochs = 1", "epochs = 3", 1))  # as if it had been begun for three
    state.write_text(state.read_text().replace('"epochs": 1,', '"epochs": 3,', 1))
    (tmp_path / "once" / "result.json").unlink()
    resumed = train(str(photos), out=tmp_path / "once", resume=True, **{**settings, "epochs": 3})
    straight = train(str(photos), **{**settings, "epochs": 3})
    assert [row["loss"] for row in resumed.history] == pytest.approx([row["loss"] for row in straight.history])
    Image.new("RGB", (64, 64)).save(photos / "cat" / "03.jpg")  # is there now, and was not then
    (tmp_path / "once" / "result.json").unlink()
    with pytest.raises(TrainingError, match=r"was begun with \d+ training rows and there are \d+ now; put the data"):
        train(str(photos), out=tmp_path / "once", resume=True, **{**settings, "epochs": 3})


def test_features_of_the_linear_phase_are_those_of_the_rows_kept(photos: Path, tmp_path: Path) -> None:
    """As with splits that were decoded, and their rows left out, before training."""
    settings: dict[str, Any] = {**SMALL, "mode": "linear", "method": "em", "feature_cache": str(tmp_path / "cache")}
    damaged = train(str(photos), **settings)
    clean = train(load_dataset(str(photos), verify="decode"), **settings)
    for part in ("train", "validation"):
        np.testing.assert_allclose(damaged.scores[part], clean.scores[part], atol=1e-6)
    assert sum(len(scores) for scores in damaged.scores.values()) == 20


def test_features_on_a_cpu_are_made_once(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all trainings on a network's features, unless told otherwise or where they cannot be kept."""
    monkeypatch.setenv("ONELABEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    settings: dict[str, Any] = {**SMALL, "mode": "linear", "method": "em"}
    first = train(str(photos), **settings)
    made = sorted((tmp_path / "cache").rglob("*.npy"))
    assert len(made) == 2  # training and validation
    before = [file.stat().st_mtime_ns for file in made]
    again = train(str(photos), **{**settings, "method": "an"})
    assert sorted((tmp_path / "cache").rglob("*.npy")) == made
    assert [file.stat().st_mtime_ns for file in made] == before
    (tmp_path / "file").write_text("no folder can be made here")
    monkeypatch.setenv("ONELABEL_CACHE", str(tmp_path / "file"))
    without = train(str(photos), **settings)
    off = train(str(photos), **settings, feature_cache="off")
    for run in (without, off):
        np.testing.assert_allclose(run.scores["validation"], first.scores["validation"], atol=1e-5)
    assert again.scores["validation"].shape == first.scores["validation"].shape


def test_streamed_pictures_that_were_decoded_are_not_looked_at_again(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(monkeypatch, "stream")
    settings: dict[str, Any] = {**SMALL, "epochs": 1, "mode": "finetune", "method": "em"}
    looked: list[int] = []

    def look(source: Any, *_: Any, **__: Any) -> Any:
        looked.append(len(source))
        return np.ones(len(source), bool)

    monkeypatch.setattr("onelabel.training.readable.readable", look)
    once = verify_splits(load_dataset(str(photos)))
    train(verify_splits(once), **settings)
    assert looked == []
    train(load_dataset(str(photos)), **settings)
    assert looked


def test_a_part_that_nothing_is_left_of(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    loaded = load_dataset(str(photos))
    assert loaded.validation is not None
    for name in names(loaded.validation):
        (photos / name).write_bytes((photos / name).read_bytes()[:2000])
    run = train(loaded, method="em", **{**SMALL, "epochs": 1, "mode": "finetune"})
    assert "validation" not in run.scores
    assert "validation_mAP" not in run.result
    for name in names(loaded.train):
        (photos / name).write_bytes((photos / name).read_bytes()[:2000])
    with pytest.raises(DataError, match="no usable training rows"):
        train(loaded, method="em", **{**SMALL, "epochs": 1, "mode": "finetune"})


def test_a_run_that_left_pictures_out_says_so_to_who_loads_its_data_again(tmp_path: Path) -> None:
    Origin("digits-scenes", None, {"size": 24}).save(tmp_path)
    assert Origin.load(tmp_path).options == {"size": 24}
    with pytest.raises(FileNotFoundError, match="no weights yet; resume the run first"):
        Origin.load(tmp_path / "begun")
    Origin("digits-scenes", None, {"size": 24}).save(tmp_path, whole=False)
    again = Origin.load(tmp_path)
    assert again.options == {"size": 24, "verify": "decode"}
    assert len(load_dataset(again.source, **again.options).train) > 0  # a loader without pictures files takes it too


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["host", "stream"])
def test_processes_agree_on_the_rows(photos: Path, tmp_path: Path, processes: Any, placement: str) -> None:
    """The second process cannot read one picture more: it leaves in both."""
    from test_distributed import free_port

    port, more = free_port(), names(load_dataset(str(photos)).train)[1]  # of the second process's share
    children = [
        processes.Process(
            target=train_folder_as_rank, args=(rank, 2, port, str(photos), str(tmp_path / "two"), placement, more)
        )
        for rank in (0, 1)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
        assert child.exitcode == 0
    (photos / more).write_bytes((photos / more).read_bytes()[:2000])
    train_folder(str(photos), str(tmp_path / "one"), placement)
    for part in ("train", "validation"):
        one, two = (np.load(tmp_path / name / f"scores-{part}.npy") for name in ("one", "two"))
        np.testing.assert_allclose(one, two, atol=1e-4)
