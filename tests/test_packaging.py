"""What goes into the wheel, without network; tests/packaging/smoke.sh installs it into a clean environment."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import onelabel

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "onelabel"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("setuptools", minversion="77")
    place = tmp_path_factory.mktemp("wheel")
    copy = place / "source"  # a build leaves its traces beside the sources
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, copy / name)
    words = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", place, copy]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = place.glob("*.whl")
    return made


def test_every_file_of_the_package_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("onelabel/")}
        tops = {name.partition("/")[0] for name in archive.namelist()}
    wanted = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert inside == wanted
    assert {"onelabel/py.typed", "onelabel/review/static/index.html", "onelabel/bench/published.csv"} <= inside
    assert any(re.fullmatch(r"onelabel/bench/recipes/voc2012/.*\.toml", name) for name in inside)
    assert tops == {"onelabel", f"onelabel-{onelabel.__version__}.dist-info"}


def test_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folder = f"onelabel-{onelabel.__version__}.dist-info"
        about = email.message_from_bytes(archive.read(f"{folder}/METADATA"))
        assert b"onelabel = onelabel.__main__:main" in archive.read(f"{folder}/entry_points.txt")
    assert about["Version"] == onelabel.__version__
    bare = {re.match(r"[\w-]+", need)[0] for need in about.get_all("Requires-Dist") if "extra ==" not in need}  # type: ignore[index]
    assert bare == {"torch", "numpy"}  # the loss alone installs with torch only
    assert {"vision", "review", "report", "export", "all"} <= set(about.get_all("Provides-Extra"))
    assert re.fullmatch(r"\d+\.\d+\.\d+", about["Version"])


def test_it_works_where_it_is_unpacked(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    core = ROOT / "tests" / "packaging" / "core.py"
    code = f"import onelabel, runpy; assert {str(tmp_path)!r} in onelabel.__file__; runpy.run_path({str(core)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_the_extra_the_program_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError(\"No module named 'typer'\", name='typer')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{PACKAGE.parent}"}
    done = subprocess.run(
        [sys.executable, "-m", "onelabel", "--help"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "error: typer is not installed: pip install 'onelabel[vision]'\n")


def test_version_is_said_once() -> None:
    assert f"version: {onelabel.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"({onelabel.__version__})" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
