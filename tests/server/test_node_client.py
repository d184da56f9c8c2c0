"""docs/protocol.md suffices to write a client in another language: client.mjs is one."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running_servers import PATIENCE, Running, expected, text_of

NODE = shutil.which("node")
Start = Callable[..., Running]
pytestmark = pytest.mark.skipif(NODE is None, reason="no node: apt-get install nodejs")


def run(server: Running, text: str, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit status, and every message the client has seen."""
    command = [NODE or "", str(Path(__file__).with_name("client.mjs")), server.url, *options]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE)
    assert not done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def written(messages: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(m["text"], m["delay"]) for m in messages if m.get("type") == "write"]


def test_a_client_in_node(start: Start) -> None:
    server = start(queue=5, window=128)  # smaller than the text: it must acknowledge and wait
    text = text_of(1, sentences=20)
    status, messages = run(server, text)
    assert status == 0
    assert written(messages) == expected(text)
    assert [m.get("type") for m in messages][:1] == ["started"]
    assert messages[-2]["type"] == "finished"
    assert messages[-1] == {"closed": 1000}


@pytest.mark.parametrize("cut", [1, 7])
def test_a_client_in_node_resumes(start: Start, cut: int) -> None:
    server = start()
    text = text_of(2, sentences=5)
    status, messages = run(server, text, "--cut", str(cut))
    assert status == 0
    assert written(messages) == expected(text)
    assert sum(m.get("resumed", False) for m in messages) == len(text.split()) // cut
    numbers = [m["seq"] for m in messages if m.get("seq")]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_client_in_node_is_told_what_is_wrong(start: Start) -> None:
    server = start(token="sesame")
    status, messages = run(server, "ab", "--token", "wrong")
    assert status == 1
    assert messages[0]["code"] == "unauthorized"
    assert messages[1] == {"closed": 4401}
    status, messages = run(server, "ab!", "--token", "sesame")
    assert written(messages) == expected("ab!")
