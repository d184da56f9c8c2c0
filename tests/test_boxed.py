"""Models by name: found in the box, and the error lists what is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import simultan
from simultan import boxed, cli


@pytest.fixture
def boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """An installed box and one of a checkout, both empty."""
    installed, checkout = tmp_path / "installed", tmp_path / "checkout"
    monkeypatch.setattr(boxed, "BOXES", (installed, checkout))
    monkeypatch.chdir(tmp_path)
    return installed, checkout


def put(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "weights.safetensors").touch()
    return folder


def test_names(boxes: tuple[Path, Path]) -> None:
    installed, checkout = boxes
    with pytest.raises(ValueError, match="which model"):
        boxed.default()
    old = put(checkout / "de-en")
    other = put(checkout / "fr-en")
    assert boxed.default() == "de-en"
    assert boxed.resolve("fr-en") == other
    assert boxed.resolve("de-en") == old
    (checkout / "xx").mkdir()  # no model
    with pytest.raises(FileNotFoundError, match="known names: de-en, fr-en"):
        boxed.resolve("xx")
    assert boxed.resolve("de-en") == old
    new = put(installed / "de-en")
    assert boxed.resolve("de-en") == new


def test_folders_come_first(boxes: tuple[Path, Path], tmp_path: Path) -> None:
    put(boxes[0] / "de-en")
    (tmp_path / "de-en").mkdir()  # some folder of that name, but no model
    assert boxed.resolve("de-en") == boxes[0] / "de-en"
    (tmp_path / "de-en" / "weights.safetensors").touch()
    assert boxed.resolve("de-en") == Path("de-en")
    assert boxed.resolve(tmp_path / "nowhere" / "else") == tmp_path / "nowhere" / "else"


def test_an_unknown_name(boxes: tuple[Path, Path]) -> None:
    with pytest.raises(FileNotFoundError, match="there is no model in the box"):
        simultan.load("de-fr")
    put(boxes[1] / "de-en")
    with pytest.raises(FileNotFoundError, match=r"de-fr: neither .* known names: de-en"):
        simultan.load("de-fr")


def test_the_command_line_without_a_model(
    boxes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["simultan", "translate"])
    with pytest.raises(SystemExit):
        cli.main()
    assert "which model?" in capsys.readouterr().err
    put(boxes[1] / "de-en")  # it is taken, and found to be empty
    with pytest.raises(SystemExit):
        cli.main()
    assert "checkout/de-en" in capsys.readouterr().err


def test_a_wheel_holds_the_models(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    root, project = Path(__file__).parents[1], tmp_path / "project"
    for folder in ("src/simultan", "recipes/starter"):
        shutil.copytree(root / folder, project / folder)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(root / name, project)
    card = put(project / "models" / "de-en") / "MODEL_CARD.md"
    card.write_text("a card")
    (project / "models" / "unfinished").mkdir()
    (project / "models" / "unfinished" / "notes").touch()
    build = "from setuptools.build_meta import build_wheel; print(build_wheel('out'))"
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=project, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(project / "out" / done.stdout.split()[-1]) as wheel:
        names = {name for name in wheel.namelist() if "/models/" in name}
        wheel.extractall(tmp_path / "site")
    place = "simultan/models/de-en"
    assert names == {f"{place}/weights.safetensors", f"{place}/MODEL_CARD.md"}
    found = subprocess.run(
        [sys.executable, "-c", "from simultan import boxed; print(boxed.resolve('de-en'))"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    assert Path(found.stdout.strip()) == (tmp_path / "site" / place).resolve()
