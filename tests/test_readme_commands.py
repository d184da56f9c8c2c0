"""Every command and every example of the README runs, as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def blocks(language: str, heading: str) -> str:
    section = (ROOT / "README.md").read_text("utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recipes, in which the README's shell commands have run."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "recipes").symlink_to(ROOT / "recipes")
    return folder


def run(command: list[str], place: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_the_commands_and_the_examples(place: Path) -> None:
    shell = blocks("sh", "Train and evaluate")
    assert shell.count("simultan ") >= 6
    output = run(["bash", "-euc", shell], place)
    assert "maison rouge" in output  # of "a red house"
    assert (place / "runs/toy/curve.png").exists()
    assert (place / "runs/toy/test/scores.json").exists()
    events = run([sys.executable, "-c", blocks("python", "Use it")], place)
    assert "Write(text='My', delay=3" in events  # the model in the box
