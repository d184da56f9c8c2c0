"""Agents decide from outside when an offline model reads and writes; one small file each.

An agent is named with its numbers, such as "wait-k:3", or by the folder that holds its weights.
"""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from simultan.streaming.agents.agreement import Agreement
from simultan.streaming.agents.protocol import READ, WRITE, Agent, Scores, Seen
from simultan.streaming.agents.static import Static
from simultan.streaming.agents.wait_if_diff import WaitIfDiff
from simultan.streaming.agents.wait_if_worse import WaitIfWorse
from simultan.streaming.agents.wait_k import WaitK

__all__ = ["AGENTS", "READ", "WRITE", "Agent", "Scores", "Seen", "forms", "is_folder", "load_agent"]

AGENTS: dict[str, Any] = {  # name: a dataclass of whole numbers, or a class with load(folder)
    "agreement": Agreement,
    "static": Static,
    "wait-if-diff": WaitIfDiff,
    "wait-if-worse": WaitIfWorse,
    "wait-k": WaitK,
}


def forms() -> list[str]:
    """How each agent is written: "static:START,STEP"."""
    listed = {name: _numbers(name) for name in AGENTS}
    return [
        f"{name}:{','.join(numbers).upper()}" if numbers else name
        for name, numbers in listed.items()
        if numbers is not None
    ]


def is_folder(text: str) -> bool:
    """Whether this names the folder of an agent with weights; a folder's path has a slash."""
    return "/" in text or "\\" in text


def load_agent(text: str) -> Agent:
    """The agent of "NAME:NUMBERS" or of a folder."""
    if is_folder(text):
        return _from_folder(Path(text))
    name, _, rest = text.partition(":")
    expected = _numbers(name)
    numbers = rest.split(",") if rest else []
    if expected is None or len(numbers) != len(expected) or not all(map(_is_positive, numbers)):
        raise ValueError(
            f"agent {text!r}: write {', '.join(forms())} (numbers of at least 1)"
            " or the path of an agent's folder, with a slash"
        )
    agent: Agent = AGENTS[name](*map(int, numbers))
    return agent


def _numbers(name: str) -> list[str] | None:
    """The names of an agent's numbers; None for an agent that is only loaded from a folder."""
    kind = AGENTS.get(name)
    if not dataclasses.is_dataclass(kind):
        return None
    return [field.name for field in dataclasses.fields(kind)]


def _is_positive(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) > 0


def _from_folder(folder: Path) -> Agent:
    """agent.toml names the kind of agent, whose class loads the rest."""
    path = folder / "agent.toml"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is not an agent's folder: it has no agent.toml")
    name = str(tomllib.loads(path.read_text(encoding="utf-8")).get("name"))
    kind = AGENTS.get(name)
    if kind is None or not hasattr(kind, "load"):
        raise ValueError(f"{path}: no agent with weights is called {name!r}")
    agent: Agent = kind.load(folder)
    return agent
