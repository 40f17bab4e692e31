"""The doctor sees what is wrong, says what to do, and never falls over."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from onelabel import doctor
from onelabel.doctor import machine, own
from onelabel.models import build_backbone

ROOT = Path(__file__).resolve().parents[2]


def level(findings: list[doctor.Finding], what: str) -> str:
    return next(each.level for each in findings if each.what == what)


def test_a_machine_without_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = doctor.examine()
    assert doctor.healthy(found), doctor.text(found)
    assert {"python", "torch", "memory", "disk", "cache", "[vision]"} <= {each.what for each in found}


def test_extras_are_those_of_pyproject() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    assert set(machine.EXTRAS) == set(re.findall(r"^(\w+) = ", table, flags=re.M)) - {"all", "dev", "docs"}


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise RuntimeError('CUDA driver version is insufficient')", "visible but broken"),
        ("import os; os.abort()", "visible but broken"),
        ("import time; time.sleep(60)", "no answer"),
        ("print('gpu|0|H200|100.0|139.0')", "computes"),
    ],
)
def test_a_gpu_is_asked_in_a_process_of_its_own(code: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_PROBE", code)
    (found,) = machine.cuda(seconds=5)
    assert told in found.found
    assert found.level == ("ok" if told == "computes" else "bad")


def test_junk_in_cuda_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "77")
    if torch.cuda.is_available():
        pytest.skip("this process sees a GPU already")
    (found,) = machine.cuda()
    assert found.level == "bad"
    assert "CUDA_VISIBLE_DEVICES" in found.remedy + found.found


def test_versions_are_compared_with_the_tested_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    real = machine.importlib.metadata.version
    monkeypatch.setattr(machine.importlib.metadata, "version", lambda name: "1.13.0" if name == "torch" else real(name))
    found = list(machine.versions())
    assert "torch 1.13.0 (tested" in found[0].found
    assert found[1].level == "bad"
    assert "expected at least 2" in found[1].found


def test_a_missing_extra_is_a_note_with_what_it_enables(monkeypatch: pytest.MonkeyPatch) -> None:
    real = machine.importlib.util.find_spec
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: None if name == "onnx" else real(name))
    found = {each.what: each for each in machine.extras()}
    assert found["[export]"].level == "note"
    assert "models as ONNX" in found["[export]"].found
    assert "onelabel[export]" in found["[export]"].remedy


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert level(list(machine.writable("disk", tmp_path / "runs", "elsewhere")), "disk") == "bad"


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for GPUs starts a process that imports torch; once is enough."""
    monkeypatch.setattr(machine, "cuda", list)


@pytest.mark.usefixtures("no_gpu")
def test_a_cache_behind_a_file_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ONELABEL_CACHE", str(tmp_path / "file"))
    assert level(doctor.examine(), "cache") == "bad"


@pytest.mark.usefixtures("no_gpu")
def test_weights(tmp_path: Path) -> None:
    good, other, junk = tmp_path / "good.safetensors", tmp_path / "other.safetensors", tmp_path / "junk.safetensors"
    state = {name: value.clone() for name, value in build_backbone("small-cnn").state_dict().items()}
    save_file(state, good)
    save_file({"layers.0.weight": torch.zeros(3)}, other)
    junk.write_bytes(b"not weights")
    state["layers.0.weight"][0] = float("nan")
    save_file(state, tmp_path / "nan.safetensors")
    for file, wanted in ((good, "ok"), (other, "bad"), (junk, "bad"), (tmp_path / "nan.safetensors", "bad")):
        found = doctor.examine(weights=file, backbone="small-cnn")
        assert level(found, "weights") == wanted, doctor.text(found)


@pytest.mark.usefixtures("no_gpu")
def test_pretrained_weights_are_said_to_be_here_or_to_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    found = doctor.examine()
    assert doctor.healthy(found)
    (none,) = [each for each in found if each.what == "weights"]
    assert none.level == "note"
    assert none.found == "resnet50: no copy of the pretrained ones on this machine; downloaded at first use"
    assert "--weights FILE" in none.remedy
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    (none,) = own.pretrained()
    assert none.found.endswith("HF_HUB_OFFLINE forbids the download")
    folder = tmp_path / "models--timm--resnet50.a1_in1k"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    (folder / "snapshots" / ("0" * 40)).mkdir(parents=True)
    (folder / "snapshots" / ("0" * 40) / "model.safetensors").touch()
    (kept,) = own.pretrained()
    assert (kept.level, kept.found) == ("ok", "resnet50: a copy of the pretrained ones is on this machine")
    (small,) = own.pretrained("small-cnn")
    assert (small.level, small.found) == ("ok", "small-cnn starts from random ones, there are no others")
    for name, told in (("resnet5", "did you mean 'resnet50'"), ("efficientnet_b8", "timm has no pretrained weights")):
        (wrong,) = own.pretrained(name)
        assert wrong.level == "bad"
        assert told in wrong.found
    assert [each.level for each in own.weights("random", "efficientnet_b8")] == ["ok"]
    monkeypatch.setitem(sys.modules, "timm", None)
    assert list(own.pretrained()) == []  # the extras say so


@pytest.mark.usefixtures("no_gpu")
def test_a_dataset(tmp_path: Path) -> None:
    assert level(list(own.data("digits-scenes", None)), "data") == "ok"
    assert level(doctor.examine(data=str(tmp_path / "nowhere")), "data") == "bad"
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    (tmp_path / "photos" / "cat" / "1.jpg").write_bytes(b"no picture")
    assert level(doctor.examine(data=str(tmp_path / "photos")), "data") == "bad"


def test_the_remedy_for_a_table_has_its_root(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for name, colour in (("a", "red"), ("b", "blue")):
        Image.new("RGB", (16, 16), colour).save(tmp_path / "photos" / f"{name}.png")
    table = tmp_path / "t.csv"
    table.write_text("path,label\na.png,Sea\nb.png,sea\nc.png,sea\n")
    bad, alike = own.data(str(table), str(tmp_path / "photos"))
    assert bad.remedy == f"onelabel data check {table} --root {tmp_path / 'photos'}"
    assert (alike.level, alike.found) == ("note", "separate classes: 'Sea' and 'sea'")
    (failed,) = own.data(str(table), None)
    assert failed.level == "bad"
    assert "--root" in failed.found


@pytest.mark.usefixtures("no_gpu")
def test_what_nobody_foresaw_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError("an unlucky machine")

    monkeypatch.setattr(machine, "memory", broken)
    found = doctor.examine()
    assert level(found, "memory") == "bad"
    assert not doctor.healthy(found)


def test_a_machine_without_torch_gets_an_answer() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from onelabel import doctor\n"
        "from onelabel.doctor import machine\n"
        "machine.cuda = list\n"
        "found = doctor.examine(data='digits-scenes', weights='nowhere.pth')\n"
        "print(doctor.text(found)); sys.exit(doctor.healthy(found))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "BAD torch" in done.stdout
    assert "pip install" in done.stdout
