"""The files of deploy/ name options, files and paths that there are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simultan.cli import app
from simultan.model import kernels
from simultan.server.access import Access
from simultan.server.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMMANDS = {
    "Dockerfile": r"^CMD \[(.*)\]$",
    "compose.yaml": r"command: >\n((?:      .*\n)+)",
    "simultan.service": r"^ExecStart=(.*)$",
    "nginx.conf": r"^# The server behind it: (.*\n#.*)$",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_exist(name: str) -> None:
    found = re.search(COMMANDS[name], (DEPLOY / name).read_text(), re.MULTILINE)
    assert found is not None
    options = set(re.findall(r"--[a-z][a-z-]+", found[1]))
    assert options
    help_text = CliRunner().invoke(app, ["serve", "--help"]).output
    assert {option for option in options if option not in help_text} == set()


def test_the_tokens_of_the_example_can_be_read() -> None:
    access = Access(Settings(tokens_file=DEPLOY / "tokens.example.toml"))
    assert {token.name for token in access.tokens} == {"speaker", "prometheus"}


def test_every_file_is_in_the_docs() -> None:
    text = (ROOT / "docs" / "serving.md").read_text()
    assert {path.name for path in DEPLOY.iterdir() if path.name not in text} == set()


def test_what_the_files_name_is_there() -> None:
    compose = (DEPLOY / "compose.yaml").read_text()
    assert "dockerfile: deploy/Dockerfile" in compose
    assert "./Caddyfile:" in compose
    assert "USER 10001" in (DEPLOY / "Dockerfile").read_text()
    for name in ("Dockerfile", "Caddyfile"):
        assert "/healthz" in (DEPLOY / name).read_text()


@pytest.mark.skipif(kernels.find() is None, reason="no compiler, or no AVX-512 VNNI")
def test_the_image_has_kernels_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compiled for it is found, and nothing else is there."""
    text = (DEPLOY / "Dockerfile").read_text()
    found = re.search(r'XDG_CACHE_HOME=(\S+) python -c "(.*)"', text)
    assert found is not None
    assert f"--chown=10001:10001 {found[1]} /home/simultan/.cache\n" in text
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", found[2]], env=environment, check=True)
    assert [path.suffix for path in (tmp_path / "simultan").iterdir()] == [".so"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert kernels.find.__wrapped__() is not None
