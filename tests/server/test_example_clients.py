"""The clients of examples/ translate what a session translates."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running_servers import Running, expected

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT / "src"),
    "SIMULTAN_TOKEN": "sesame",
}
TEXT = "abc de f! b cd ef a!"
WRITTEN = " ".join(text for text, _ in expected(TEXT)).split()


@pytest.fixture
def server(start: Callable[..., Running]) -> Running:
    return start(token="sesame")


def run(*command: str, token: str = "sesame") -> subprocess.CompletedProcess[str]:
    environment = ENVIRONMENT | {"SIMULTAN_TOKEN": token}
    return subprocess.run(
        command, input=TEXT, env=environment, capture_output=True, text=True, timeout=600
    )


def test_the_client_in_python(server: Running) -> None:
    done = run(sys.executable, str(EXAMPLES / "client.py"), server.url)
    assert done.stdout.split() == WRITTEN, done.stderr
    assert run(sys.executable, str(EXAMPLES / "client.py"), server.url, token="x").returncode


@pytest.mark.skipif(shutil.which("node") is None, reason="no node: apt-get install nodejs")
def test_the_client_in_javascript(server: Running) -> None:
    command = ["node", "--experimental-websocket", str(EXAMPLES / "client.mjs"), server.url]
    done = run(*command)
    assert (done.returncode, done.stdout.split()) == (0, WRITTEN), done.stderr
    wrong = run(*command, token="x")
    assert wrong.returncode == 1
    assert wrong.stderr.strip()


def test_captions_for_obs(server: Running) -> None:
    done = run(sys.executable, str(EXAMPLES / "obs.py"), server.http, "--now", "--pace", "0")
    assert done.returncode == 0, done.stderr
    address, written, *_ = done.stdout.split("\n")
    assert re.fullmatch(rf"{server.http}/overlay\?channel=[\w-]+#token=\S+", address)
    assert written.split() == WRITTEN
