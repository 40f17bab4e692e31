"""One style for every figure: colour-blind safe, a fixed look per method, readable at half size, light or dark paper.

Text and axes are drawn in `INK`, grids in `GRID`: inside a page `svg` turns both into the page's own colours.
"""

from __future__ import annotations

import contextlib
import io
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from onelabel.system import atomic_path, need

INK, MUTED, GRID, PAPER = "#1f2328", "#6e7781", "#d8dee4", "#ffffff"

# Okabe and Ito's colours, which people with every common kind of colour blindness tell apart; their yellow is too pale
# for lines on white and is left out. Methods of one family share a hue and differ in dash and marker.
ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7"
GREY, BROWN, OLIVE, WINE = "#6e7781", "#7f5a3a", "#8a8400", "#a0306a"
#: Group of entries → colour, in figures of one run.
GROUPS = {
    "observed positive": VERMILION,
    "unknown positive": BLUE,
    "unknown negative": ORANGE,
    "observed negative": GREY,
    "unknown": ORANGE,
}
_FAMILIES = {
    GREY: ("bce", "bce-ls", "iu", "iun"),
    VERMILION: ("an", "an-ls", "n-ls", "wan", "dw", "pseudo-negative", "l1r", "l2r"),
    PURPLE: ("role", "epr", "pr", "smile"),
    BLUE: ("em", "entmin"),
    SKY: ("em-apl", "en"),
    OLIVE: ("asl", "asl-ps", "focal", "fan"),
    BROWN: ("splc", "hill", "ll-r", "ll-ct", "ll-cp", "mime"),
    ORANGE: ("lasd", "las"),
    GREEN: ("gr",),
    WINE: ("roll-call",),
}
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.4)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (8, 3)))
MARKERS = "osD^vPX<"
_NAMES = {
    "pseudo-negative": "pseudo-negative", "focal": "Focal", "fan": "Focal AN", "hill": "Hill",
    "entmin": "EntMin", "mime": "MIME", "smile": "SMILE", "roll-call": "Roll call",
}  # fmt: skip


class Look(NamedTuple):
    """How a method is drawn, wherever it is."""

    colour: str
    dash: Any
    marker: str


LOOKS = {
    name: Look(colour, DASHES[i % len(DASHES)], MARKERS[(i + h) % len(MARKERS)])
    for h, (colour, names) in enumerate(_FAMILIES.items())
    for i, name in enumerate(names)
}


def look(name: str) -> Look:
    """The look of a method; a variant such as "gr:pseudo" has its method's hue, an unknown name one of its own."""
    if name in LOOKS:
        return LOOKS[name]
    base, _, variant = name.partition(":")
    number = zlib.crc32(name.encode())
    if variant and base in LOOKS:
        return Look(LOOKS[base].colour, DASHES[1 + number % (len(DASHES) - 1)], MARKERS[1 + number % 7])
    hues = list(_FAMILIES)
    return Look(hues[number % len(hues)], DASHES[number % len(DASHES)], MARKERS[number % len(MARKERS)])


def apart(looks: Sequence[Look]) -> list[Look]:
    """Settings or seeds of one method drawn together keep its hue and differ in dash and marker."""
    made: list[Look] = []
    for each in looks:
        others = (
            each._replace(dash=DASHES[at % len(DASHES)], marker=MARKERS[at % len(MARKERS)])
            for at in range(1, len(DASHES) * len(MARKERS))
        )
        taken = {*made, *looks}
        made.append(each if each not in made else next((other for other in others if other not in taken), each))
    return made


def plain(name: str, most: int = 24) -> str:
    """Any class name as matplotlib may print it: no mathematics, no control characters, not too long."""
    text = "".join(c for c in " ".join(str(name).split()) if c.isprintable()) or "–"
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("\\", "\u2216").replace("$", r"\$")


def title(name: str) -> str:
    """A method's name as figures and tables print it."""
    base, colon, variant = name.partition(":")
    known = _NAMES.get(base, base.upper() if base in LOOKS else base)
    return f"{known} {variant}" if colon else known


# -- matplotlib ----------------------------------------------------------------------------------------------------

_RC = {
    "font.family": "sans-serif", "font.size": 10, "axes.titlesize": 10.5, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.labelsize": 10, "xtick.labelsize": 9, "ytick.labelsize": 9,
    "legend.fontsize": 9, "legend.frameon": False, "legend.handlelength": 2.4, "lines.linewidth": 2.0,
    "lines.markersize": 5, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "axes.axisbelow": True, "grid.color": GRID, "grid.linewidth": 0.7, "axes.linewidth": 0.8,
    "axes.edgecolor": INK, "axes.labelcolor": INK, "axes.titlecolor": INK, "text.color": INK,
    "xtick.color": INK, "ytick.color": INK, "figure.facecolor": PAPER, "axes.facecolor": "none",
    "svg.fonttype": "none", "pdf.fonttype": 42, "savefig.dpi": 150, "figure.constrained_layout.use": True,
}  # fmt: skip


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Matplotlib with this style, inside the block."""
    matplotlib = need("matplotlib", "report")
    with matplotlib.rc_context(_RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # scripts its font lacks; a page's browser has them
        yield


def canvas(columns: int = 1, rows: int = 1, *, width: float = 4.6, height: float = 3.2, **options: Any) -> Any:
    """A new Figure and its axes (one, or an array of rows×columns) of `width`×`height` inches each."""
    figure = need("matplotlib.figure", "report").Figure(figsize=(width * columns, height * rows))
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, axes[0, 0] if axes.size == 1 else axes


def legend(figure: Any, ax: Any, *, inside: int = 3, where: str = "lower") -> None:
    """The legend of `ax`: inside where there are few entries, else below or above the figure."""
    handles, names = ax.get_legend_handles_labels()
    if len(names) > inside:
        width = figure.get_figwidth()
        columns = max(1, min(len(names), int(width // (0.5 + 0.075 * max(map(len, names))))))
        figure.legend(handles, names, loc=f"outside {where} center", ncols=columns, columnspacing=1.2)
    elif names:
        ax.legend()


def save(figure: Any, path: str | Path) -> Path:
    """Write a figure by its suffix: .svg, .pdf, .png; whole or not at all."""
    target = Path(path)
    if target.suffix.lower() not in (".svg", ".pdf", ".png"):
        raise ValueError(f"out: {str(path)!r}, expected a name that ends in .svg, .pdf or .png")
    target.parent.mkdir(parents=True, exist_ok=True)
    stable: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(target.suffix.lower(), {})
    with styled(), atomic_path(target) as temporary:
        figure.savefig(temporary, metadata=stable or None)
    return target


def svg(figure: Any, *, key: str) -> str:
    """A figure as an SVG element for a page: no background, text and axes in the page's colours.

    `key` keeps the ids of several figures in one page apart.
    """
    import matplotlib

    out = io.StringIO()
    with styled(), matplotlib.rc_context({"svg.hashsalt": key}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    for drawn, wanted in ((INK, "currentColor"), (GRID, "var(--grid)"), (MUTED, "var(--muted)")):
        text = text.replace(drawn, wanted)
    return text
