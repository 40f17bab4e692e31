"""One look per method, told apart by people who see colours otherwise."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import onelabel
from onelabel.report import style
from onelabel.report.figures import curves

# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
SEEN = {
    "everyone": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip


def lab(colour: str, seen: np.ndarray) -> np.ndarray:
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(seen @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    t = xyz / np.array([0.9505, 1.0, 1.089])
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("kind", SEEN)
def test_the_main_methods_are_told_apart(kind: str) -> None:
    colours = {name: style.look(name).colour for name in ("an", "em", "gr", "role", "lasd", "bce")}
    for (one, a), (two, b) in itertools.combinations(colours.items(), 2):
        apart = np.linalg.norm(lab(a, SEEN[kind]) - lab(b, SEEN[kind]))
        # what a colour-blind person may confuse differs in marker as well
        assert apart > 10 or style.look(one).marker != style.look(two).marker, (kind, one, two, apart)
        assert apart > 6, (kind, one, two, apart)


def test_every_method_has_its_own_fixed_look() -> None:
    known = [style.look(name) for name in onelabel.list_methods()]
    assert len(set(known)) == len(known)
    assert style.look("em") == style.look("em")
    assert style.look("gr:pseudo").colour == style.look("gr").colour
    assert style.look("gr:pseudo") != style.look("gr")


def test_runs_of_one_method_are_told_apart() -> None:
    made = style.apart([style.look("em")] * 3 + [style.look("an")])
    assert len(set(made)) == 4
    assert {m.colour for m in made[:3]} == {style.look("em").colour}
    assert made[0] == style.look("em")
    assert made[3] == style.look("an")
    names = ["gr", *(f"gr:{x}" for x in ("pseudo", "weight", "robust", "weight+robust", "trainable", "pseudo+weight"))]
    assert len({style.look(name) for name in names}) < len(names)  # hashes meet
    assert len(set(style.apart([style.look(name) for name in names]))) == len(names)
    assert len(style.apart([style.look("em")] * 60)) == 60  # more than there are looks


def test_class_names_are_plain_text() -> None:
    assert style.plain("$x_1$") == r"\$x_1\$"
    assert style.plain("a\nb\x00c") == "a bc"
    assert style.plain("x" * 50) == "x" * 23 + "…"
    assert style.plain("\x00") == "–"


@pytest.mark.parametrize("suffix", ["svg", "pdf", "png"])
def test_saving(tmp_path: Path, suffix: str) -> None:
    target = style.save(curves(["em"]), tmp_path / "new" / f"x.{suffix}")
    heads = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}
    assert target.read_bytes().startswith(heads[suffix])
    assert list(target.parent.iterdir()) == [target]
    again = style.save(curves(["em"]), tmp_path / f"y.{suffix}")
    if suffix != "svg":  # whose ids are drawn
        assert again.read_bytes() == target.read_bytes()


def test_an_unknown_suffix_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a name that ends in .svg, .pdf or .png"):
        style.save(curves(["em"]), tmp_path / "x.bmp")


def test_svg_for_a_page_has_the_pages_colours() -> None:
    text = style.svg(curves(["em", "an"]), key="x")
    assert text.startswith("<svg")
    assert "currentColor" in text
    assert "var(--grid)" in text
    assert style.INK not in text
    assert style.look("em").colour in text
    assert "#ffffff" not in text
