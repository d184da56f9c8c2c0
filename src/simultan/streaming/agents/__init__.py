"""Agents decide from outside when an offline model reads and writes; in small files.

An agent is named with its numbers, such as "wait-k:3", or by the folder that holds its weights.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import tomllib
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

from simultan.streaming.agents.agreement import Agreement
from simultan.streaming.agents.attending import AlignAtt, EDAtt
from simultan.streaming.agents.hold import Hold
from simultan.streaming.agents.protocol import READ, WRITE, Agent, Answer, Guess, Rest, Scores, Seen
from simultan.streaming.agents.static import Static
from simultan.streaming.agents.wait_if import WaitIfDiff, WaitIfWorse
from simultan.streaming.agents.wait_k import WaitK

__all__ = [
    "AGENTS",
    "READ",
    "WRITE",
    "Agent",
    "Answer",
    "Guess",
    "Rest",
    "Scores",
    "Seen",
    "forms",
    "is_folder",
    "load_agent",
]

AGENTS: dict[str, Any] = {  # name: a dataclass of numbers, or a class with load(folder)
    "agreement": Agreement,
    "align-att": AlignAtt,
    "ed-att": EDAtt,
    "hold": Hold,
    "static": Static,
    "wait-if-diff": WaitIfDiff,
    "wait-if-worse": WaitIfWorse,
    "wait-k": WaitK,
}
TRAINED = {"imitation": "Imitation", "predict": "Predict", "reinforced": "Reinforced"}  # by file


def forms() -> list[str]:
    """How each agent is written: "static:START,STEP"; what may be left out is in brackets."""
    listed = {name: _numbers(name) for name in AGENTS}
    return [
        f"{name}:{_form(numbers)}" if numbers else name
        for name, numbers in listed.items()
        if numbers is not None
    ]


def _form(numbers: list[Field[Any]]) -> str:
    needed, *rest = [",".join(f.name for f in numbers if f.default is MISSING)] + [
        f"[,{f.name}]" for f in numbers if f.default is not MISSING
    ]
    return (needed + "".join(rest)).upper()


def is_folder(text: str) -> bool:
    """Whether this names the folder of an agent with weights; a folder's path has a slash."""
    return "/" in text or "\\" in text


def load_agent(text: str) -> Agent:
    """The agent of "NAME:NUMBERS", of a folder, or of a folder with a threshold: "DIR/NAME:0.3"."""
    if is_folder(text):
        return _from_folder(text)
    name, _, rest = text.partition(":")
    expected = _numbers(name)
    texts = rest.split(",") if rest else []
    numbers = [_number(field, text) for field, text in zip(expected or [], texts, strict=False)]
    needed = sum(field.default is MISSING for field in expected or [])
    enough = expected is not None and needed <= len(texts) <= len(expected)
    if not enough or None in numbers:
        between = "; with several, put a space between them" if ":" in rest else ""
        raise ValueError(
            f"agent {text!r}: write {', '.join(forms())} (whole numbers of at least 1;"
            f" {', '.join(_shares())} between 0 and 1) or the path of an agent's folder, with a"
            f" slash{between}"
        )
    agent: Agent = AGENTS[name](*numbers)
    return agent


def _numbers(name: str) -> list[Field[Any]] | None:
    """An agent's numbers; None for an agent that is only loaded from a folder."""
    kind = AGENTS.get(name)
    if not dataclasses.is_dataclass(kind) or hasattr(kind, "load"):
        return None
    return list(dataclasses.fields(kind))


def _is_share(field: Field[Any]) -> bool:
    return field.type in (float, "float")


def _shares() -> list[str]:
    fields = [field for name in AGENTS for field in _numbers(name) or []]
    return sorted({field.name.upper() for field in fields if _is_share(field)})


def _number(field: Field[Any], text: str) -> float | None:
    """A share, where the field is a float, or a whole number from 1 on; None: it is neither."""
    if _is_share(field):
        share = float(text) if re.fullmatch(r"0?\.[0-9]+", text) else 0.0
        return share or None
    return int(text) if re.fullmatch("[0-9]+", text) and int(text) else None


def _from_folder(text: str) -> Agent:
    """agent.toml names the kind of agent, whose class loads the rest."""
    found = re.fullmatch(r"(.+):(0?\.[0-9]+)", text)
    folder = Path(found[1] if found else text)
    path = folder / "agent.toml"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is not an agent's folder: it has no agent.toml")
    name = str(tomllib.loads(path.read_text(encoding="utf-8")).get("name"))
    kind = _trained(name) if name in TRAINED else AGENTS.get(name)
    if kind is None or not hasattr(kind, "load"):
        raise ValueError(f"{path}: no agent with weights is called {name!r}")
    agent: Agent = kind.load(folder)
    if found:
        if not hasattr(agent, "threshold"):
            raise ValueError(f"{text}: {name} has no threshold; write the folder alone")
        agent.threshold = float(found[2])
    return agent


def _trained(name: str) -> Any:
    """The class of an agent with weights: only who uses one needs PyTorch for it."""
    return getattr(importlib.import_module(f"simultan.streaming.agents.{name}"), TRAINED[name])
