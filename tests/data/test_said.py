"""What is said of own data: names alike, links, delimiters, repeats, and the same line whoever reads it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onelabel.cli import main
from onelabel.data import DataError, Report, load_dataset
from onelabel.data.cells import mention_undivided
from onelabel.data.load import check_command
from onelabel.data.own import class_counts, class_line, mention_alike
from onelabel.data.verify import mention_repeats, verify_splits

Picture = Callable[..., bytes]


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run `onelabel data check`: exit code, what it printed, its errors."""
    with pytest.raises(SystemExit) as stop:
        main(["data", "check", *words])
    out = capsys.readouterr()
    return int(stop.value.code or 0), out.out, out.err


# --- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["Desert", "desert", "sea"], ["'Desert' and 'desert'"]),
        (["\xc9cole", "E\u0301cole"], [r"'\xc9cole' and 'E\u0301cole'"]),  # they look the same
        (["sea ", "sea", " Sea"], ["'sea ' and 'sea' and ' Sea'"]),
        (["sea", "seal", "s ea", "m2", "m²"], []),
    ],
)
def test_class_names_alike_are_mentioned(names: list[str], told: list[str]) -> None:
    report = Report(strict=True)  # a name is a name: strict lets it pass
    mention_alike(names, report)
    assert report.names("alike") == told


def test_folders_alike_stay_separate(class_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(class_folder / "owl", class_folder / "Cat")
    splits = load_dataset(class_folder, validation=0)
    assert class_counts(splits) == {"Cat": 4, "cat": 4, "dog": 4, "owl": 4}
    assert splits.left_out.startswith("own: separate classes with names alike: 'Cat' and 'cat'; `onelabel data check")
    code, out, _ = check(capsys, str(class_folder))
    assert code == 0
    assert "4 classes: Cat 4, cat 4, dog 4, owl 4" in out
    assert "1 alike: classes whose names differ only in case" in out
    assert "    'Cat' and 'cat'\n" in out


def test_many_classes_are_told_by_the_most_and_least_frequent() -> None:
    line = class_line({f"c{i}": i for i in range(100)}, most=4)
    assert line == "100 classes: c99 99, c98 98, …, c1 1, c0 0"
    assert class_line({"a\nb": 1200}) == r"1 class: a\nb 1,200"


# --- links -------------------------------------------------------------------------------------------------------


def test_links_to_class_folders_and_above_are_left_out(class_folder: Path, tmp_path: Path) -> None:
    (class_folder / "loop").symlink_to(".")
    (class_folder / "kitten").symlink_to("cat")
    (class_folder / "cat" / "up").symlink_to("..")
    (class_folder / ".store").mkdir()
    for place in (tmp_path / "elsewhere", class_folder / ".store" / "elk"):  # links to these are someone's storage
        shutil.copytree(class_folder / "owl", place)
    (class_folder / "bat").symlink_to(tmp_path / "elsewhere")
    (class_folder / "vampire").symlink_to(tmp_path / "elsewhere")
    (class_folder / "elk").symlink_to(".store/elk")
    splits = load_dataset(class_folder, validation=0)
    assert class_counts(splits) == {"bat": 4, "cat": 4, "dog": 4, "elk": 4, "owl": 4}
    assert sorted(splits.report.names("linked-folder")) == ["cat/up", "kitten", "loop", "vampire"]


# --- tables ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize("by", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_delimiter_is_found(class_folder: Path, by: str, suffix: str, encoding: str) -> None:
    file = class_folder / f"t.{suffix}"
    rows = [["Path", "label"], ["cat/cat0.jpg", "cat,; big"], ["dog/dog0.jpg", "dog"]]
    file.write_text("\r\n".join(by.join(f'"{cell}"' for cell in row) for row in rows), encoding=encoding)
    options = {"encoding": encoding} if encoding == "utf-16" else {}
    assert load_dataset(file, validation=0, **options).class_names == ("cat,; big", "dog")


def test_a_column_of_paths_counts_for_more_than_many_columns(class_folder: Path) -> None:
    file = class_folder / "t.csv"
    file.write_text("where,label;of;it\ncat/cat0.jpg,cat\n")
    assert load_dataset(file, validation=0, image="where", labels="label;of;it").class_names == ("cat",)
    with pytest.raises(DataError, match=r"it has where,label, of, it; pass -o image=COLUMN \(image=\)"):
        load_dataset(file)


def test_a_table_without_a_header_is_told_to_name_its_columns(class_folder: Path) -> None:
    file = class_folder / "t.csv"
    file.write_text("cat/cat0.jpg,cat\ndog/dog0.jpg,dog\n")
    with pytest.raises(DataError, match=r"it has cat/cat0.jpg, cat; its first line should name the columns, such as"):
        load_dataset(file)


def test_the_delimiter_can_be_said(class_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = class_folder / "t.csv"
    file.write_text("path:label\ncat/cat0.jpg:cat\n")
    assert load_dataset(file, validation=0, delimiter=":").class_names == ("cat",)
    file.write_text("path\tlabel,first\ncat/cat0.jpg\tcat\n")
    assert check(capsys, str(file), "-o", "delimiter=tab", "-o", "labels=label,first", "-o", "validation=0")[0] == 0
    with pytest.raises(DataError, match=r"delimiter: '::', expected one character, or tab"):
        load_dataset(file, delimiter="::")


def test_cells_that_were_divided_are_counted(class_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = class_folder / "t.csv"
    file.write_text("path,label\ncat/cat0.jpg,a|b\ndog/dog0.jpg,dog\n")
    code, out, _ = check(capsys, str(file), "-o", "validation=0")
    assert code == 0
    assert "1 of 2 cells divided at '|', such as 'a|b'; -o separator= (separator='') keeps them whole" in out
    assert "3 classes: " in out
    _, out, _ = check(capsys, str(file), "-o", "validation=0", "-o", "separator=", "--json")
    assert json.loads(out)["classes"] == {"a|b": 1, "dog": 1}


TAGS = ["dog, person", "person, car", "car, dog", "dog", "person"]


def _table(file: Path, labels: list[str]) -> Path:
    rows = [f'{name}/{name}{i}.jpg,"{labels[i % len(labels)]}"' for name in ("cat", "dog", "owl") for i in range(4)]
    rows += [f'more{i}.jpg,"{label}"' for i, label in enumerate(labels)]  # missing, and read all the same
    file.write_text("\n".join(["path,label", *rows]))
    return file


@pytest.mark.parametrize(
    ("labels", "option"),
    [
        (TAGS, "separator=,"),
        ([tag.replace(", ", ";") for tag in TAGS], "separator=;"),
        (["dog, person", "dog", "person", "cat"], "separator=,"),  # one combination, of classes
        (["dog, person", "person, car", "car, dog"], "separator=,"),  # none by itself
        ([*TAGS, "cup, of paper"], "separator=,"),  # not all, but most
        (["cup, paper", "dog", "cup"], None),  # there is no paper
        (["cup, paper", "cup, plastic", "dog"], None),
        (["tiger, Panthera tigris", "lion, Panthera leo", "cougar, puma"], None),
        (["cup, of paper", "cup, of tin", "cup, of gold", "dog, cat", "dog", "cat"], None),  # the fewest
        (["dog|person", "dog, person"], "separator=,"),
        (["dog|person", "dog", "person"], None),
    ],
)
def test_cells_that_seem_to_hold_several_labels_are_mentioned(
    labels: list[str], option: str | None, class_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _table(class_folder / "t.csv", labels)
    splits = load_dataset(file, validation=0)
    assert load_dataset(file, validation=0, separator="").report.names("undivided") == []
    if option is None:
        assert splits.report.names("undivided") == []
        return
    mark = option[-1]
    (first,) = splits.report.names("undivided")
    assert first.endswith(f"cells look like several labels, such as {next(x for x in labels if mark in x)!r}")
    assert f"{first}: -o {shlex.quote(option)} (separator={mark!r}) divides them" in splits.left_out
    _, out, _ = check(capsys, str(file), "-o", "validation=0", "-o", option)
    assert "undivided" not in out or "dog|person" in labels
    assert f"cells divided at {mark!r}" in out


def test_it_is_cells_that_are_counted(tmp_path: Path) -> None:
    report = Report()
    mention_undivided(["dog, person|person, dog"] * 9, "|", report)
    assert report.names("undivided") == ["9 of 9 cells look like several labels, such as 'dog, person'"]


# --- classes that training has no row of ---------------------------------------------------------------------------


def test_classes_whose_rows_are_all_held_out_are_mentioned(
    class_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ONELABEL_QUIET")
    pictures = sorted(class_folder.glob("*/*.jpg"))
    held = load_dataset(class_folder).validation.source.paths  # as published, whatever the classes
    rows = [str(path.relative_to(class_folder)) for path in pictures]
    for many, told in ((1, "1 class without a row in training: rare0 ("), (2, "2 classes .* training: rare0, rare1 (")):
        names = {row: f"rare{number}" for number, row in enumerate(held[:many])}
        file = class_folder / "t.csv"
        file.write_text("\n".join(["path,label", *(f"{row},{names.get(row, 'cat')}" for row in rows)]))
        splits = load_dataset(file, strict=True)
        assert splits.validation.source.paths == held
        assert splits.report.names("untrained") == sorted(names.values())
        splits.tell()
        assert re.search(re.escape(told).replace(r"\.\*", ".*"), capsys.readouterr().err)
    assert not load_dataset(file, validation=0).left_out
    _, out, _ = check(capsys, str(file))
    assert "2 untrained: a class without a row in training" in out
    assert "    rare1: 1 in validation; -o split_seed=N draws another validation part\n" in out


def test_many_classes_without_a_row_are_told_by_a_few(tmp_path: Path) -> None:
    observed, test = np.zeros((4, 6), np.int8), np.eye(6, dtype=np.int8)
    observed[:, 0] = 1
    np.savez(tmp_path / "f.npz", X=np.ones((4, 2)), observed=observed, X_test=np.ones((6, 2)), observed_test=test)
    splits = load_dataset(tmp_path / "f.npz", validation=0)
    assert [(p.name, p.detail) for p in splits.report] == [(str(i), "1 in test") for i in range(1, 6)]
    assert "5 classes without a row in training: 1, 2, 3 and 2 more (add some);" in splits.left_out  # no split helps


# --- repeats and names that cannot be printed ---------------------------------------------------------------------


def test_check_mentions_the_same_bytes(
    class_folder: Path, picture: Picture, capsys: pytest.CaptureFixture[str]
) -> None:
    (class_folder / "owl" / "new\nline.jpg").write_bytes(picture(0))  # cat0's
    same_size = bytearray(picture(0, form="BMP"))
    (class_folder / "dog" / "a.bmp").write_bytes(same_size)
    same_size[-1] ^= 1
    (class_folder / "dog" / "b.bmp").write_bytes(same_size)
    splits = verify_splits(load_dataset(class_folder))
    mention_repeats(splits)
    assert len(splits.report.names("duplicate-content")) == 1
    code, out, _ = check(capsys, str(class_folder))
    assert code == 0
    assert "1 duplicate-content: the same bytes as another file\n" in out
    assert "cat/cat0.jpg" in out
    assert r"owl/new\nline.jpg" in out


@pytest.fixture
def in_parts(class_folder: Path) -> Path:
    """The class folders below `train`."""
    shutil.move(class_folder, class_folder.parent / "train")
    class_folder.mkdir()
    shutil.move(class_folder.parent / "train", class_folder / "train")
    return class_folder


@pytest.mark.parametrize("name", ["val", "validation", "test"])
@pytest.mark.parametrize("target", ["train", "train/cat", ".", "elsewhere"])
def test_a_part_that_is_a_link_to_the_training_part_is_refused(
    in_parts: Path, name: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if target == "elsewhere":  # both are links to one storage
        shutil.move(in_parts / "train", in_parts.parent / "storage")
        (in_parts / "train").symlink_to(in_parts.parent / "storage")
        (in_parts / name).symlink_to(in_parts.parent / "storage")
    else:
        (in_parts / name).symlink_to(in_parts / target)
    told = "the same folder as" if target in ("train", "elsewhere") else "shares its pictures with"
    with pytest.raises(DataError, match=rf"/{name}: {told} .*/train, links followed; remove the link") as caught:
        load_dataset(in_parts)
    code, _, errors = check(capsys, str(in_parts))
    assert code == 2
    assert str(caught.value) in errors


def test_pictures_of_two_parts_are_mentioned(
    in_parts: Path, picture: Picture, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ONELABEL_QUIET")
    shutil.copytree(in_parts / "train" / "cat", in_parts / "val" / "cat")
    (in_parts / "val" / "cat" / "cat0.jpg").write_bytes(picture(77))
    (in_parts / "test").mkdir()
    (in_parts / "test" / "dog").symlink_to(in_parts / "train" / "dog")
    (in_parts / "train" / "owl" / "again.jpg").write_bytes((in_parts / "train" / "owl" / "owl0.jpg").read_bytes())
    splits = load_dataset(in_parts)
    wanted = [f"val/cat/cat{i}.jpg" for i in (1, 2, 3)] + [f"test/dog/dog{i}.jpg" for i in range(4)]
    assert sorted(splits.report.names("duplicate-content")) == sorted(wanted)
    splits.tell()
    assert capsys.readouterr().err == (
        "onelabel: own: 7 with the same bytes as another, such as test/dog/dog0.jpg as train/dog/dog0.jpg; "
        f"`onelabel data check {in_parts}` lists them\n"
    )
    _, out, _ = check(capsys, str(in_parts))
    assert "8 duplicate-content: the same bytes as another file\n" in out  # one of them twice in training
    with pytest.raises(DataError, match="the same bytes as another file"):
        load_dataset(in_parts, strict=True)
    assert not load_dataset(in_parts, verify="none").left_out


def test_pictures_of_equal_size_or_end_are_no_repeats(tmp_path: Path) -> None:
    from onelabel.data import FileSource
    from onelabel.data.verify import mention_shared

    ends = b"e" * 5000
    contents = {"a": b"1" + ends, "b": b"2" + ends, "c": b"1" + ends, "d": b"x" * 5001}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    report, usable = Report(), np.ones(4, bool)
    mention_shared(FileSource(tmp_path, list("abcd")), ["test", "train", "train", "test"], usable, report)
    assert [(p.name, p.detail) for p in report] == [("a", "as c")]


# --- the same line for everyone -----------------------------------------------------------------------------------


@pytest.fixture
def damaged(class_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty file, which shows while loading, and one cut short, which does not."""
    monkeypatch.delenv("ONELABEL_QUIET")
    monkeypatch.setenv("ONELABEL_CACHE", str(tmp_path / "cache"))
    (class_folder / "cat" / "cat0.jpg").write_bytes(b"")
    whole = (class_folder / "dog" / "dog1.jpg").read_bytes()
    (class_folder / "dog" / "dog1.jpg").write_bytes(whole[: len(whole) // 2])
    return class_folder


def _compared(data: Path) -> Any:
    from onelabel.probes.compare import read_parts

    return read_parts(str(data), backbone="small-cnn", size=16, loader={"validation": 0}).labels


def _recovered(data: Path) -> Any:
    from onelabel.recovery.inputs import load_inputs

    return load_inputs(data, backbone="small-cnn", size=16).labels


@pytest.mark.parametrize("read", [_compared, _recovered])
def test_compare_and_recover_say_what_was_left_out(
    damaged: Path, read: Callable[[Path], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(read(damaged)) == 10
    told = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert told == [
        "onelabel: own: 2 left out (1 empty-file, 1 truncated), such as cat/cat0.jpg; "
        f"`onelabel data check {damaged}` lists them"
    ]


@pytest.mark.parametrize("read", [_compared, _recovered])
def test_rows_of_a_matrix_that_are_left_out_are_said_too(
    damaged: Path, read: Callable[[Path], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = damaged.parent / "birds.arff"
    head = "@relation 'b: -C 2'\n@attribute owl {0,1}\n@attribute elk {0,1}\n@attribute size numeric\n@data\n"
    matrix.write_text(head + "1,0,2.5\n0,1,?\n" + "0,1,1.5\n" * 5)
    assert len(read(matrix)) == 6
    assert "1 left out (1 malformed), such as birds.arff: train row 1; " in capsys.readouterr().err


def _compared_plainly(data: Path) -> Any:
    from onelabel.probes.compare import read_parts

    return read_parts(str(data), size=16)


def _recovered_plainly(data: Path) -> Any:
    from onelabel.recovery.inputs import load_inputs

    return load_inputs(data, size=16)


@pytest.mark.parametrize("read", [_compared_plainly, _recovered_plainly])
def test_compare_and_recover_take_the_backbone_of_training(
    damaged: Path, read: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from onelabel import models
    from onelabel.training.config import TrainConfig

    asked = []
    real = models.build_classifier

    def build(classes: int, *, backbone: str, weights: Any) -> Any:
        asked.append((backbone, weights))
        return real(classes, backbone="small-cnn", weights=None)

    monkeypatch.setattr(models, "build_classifier", build)
    read(damaged)
    assert asked == [(TrainConfig().backbone, "pretrained")]
    assert "pictures become features of resnet50, as train takes it; --backbone" in capsys.readouterr().err


def test_the_command_to_look_closer_is_what_was_given(class_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = class_folder.parent / "my table.csv"
    file.write_text("where;label\ncat/cat0.jpg;cat\ndog/none.jpg;dog\n")
    splits = load_dataset(str(file), root=class_folder, image="where", validation=0, verify="header")
    line = splits.left_out
    command = line.split("`")[1]
    assert command == check_command(str(file), class_folder, image="where")
    words = shlex.split(command)
    assert words[:3] == ["onelabel", "data", "check"]
    code, out, _ = check(capsys, *words[3:])
    assert code == 1
    assert "1 missing (left out)" in out
    code, _, errors = check(capsys, str(file), "-o", "image=where")
    assert code == 2
    assert "2 missing (left out)" in errors
    assert "unless --root (root=) says where" in errors
