"""What is written down of a run: results and the log of runs."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from simultan.atomic import write_text
from simultan.streaming.agents import is_folder
from simultan.streaming.decoding import Decoding

__all__ = [
    "append_log",
    "choose",
    "headline",
    "line",
    "machine",
    "read",
    "revision",
    "trained_agent",
    "write",
    "write_text",
]

LOG = (
    "# Runs\n\nOne line for each run, appended by `python -m experiments.harness`: {quality}"
    " at AL on the validation set ({valid}), point by point.\n\n"
    "| run | revision | updates | seconds | on | BLEU at AL, {valid} | command |\n"
    "|---|---|---|---|---|---|---|\n"
)
QUALITIES = {"bleu": "BLEU", "bleu_lowercased": "lower-cased BLEU"}


def read(path: Path) -> dict[str, Any]:
    """A JSON object; an empty one where there is no such file."""
    if not path.is_file():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def write(path: Path, table: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(table, indent=1, ensure_ascii=False) + "\n")


def choose(
    validated: Mapping[str, Mapping[str, Any]], dal_range: tuple[float, float]
) -> tuple[str, bool]:
    """The candidate with the best validation BLEU inside a range of DAL, and whether one is.

    Where none is, the one nearest to the range.
    """
    low, high = dal_range

    def distance(name: str) -> float:
        dal = validated[name]["dal"]
        return float("inf") if dal is None else max(low - dal, dal - high, 0.0)

    inside = [name for name in validated if distance(name) == 0]
    if inside:
        return max(inside, key=lambda name: validated[name]["bleu"]), True
    return min(validated, key=distance), False


def machine(device: str) -> dict[str, str]:
    """On what a run was made."""
    name = torch.cuda.get_device_name() if device.startswith("cuda") else "CPU"
    return {"device": name, "torch": torch.__version__, "python": platform.python_version()}


def revision(folder: Path) -> str:
    """The git revision of the code, with a + where it was changed since; empty: unknown."""

    def git(*arguments: str) -> str:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
        return answer.stdout.strip() if answer.returncode == 0 else ""

    head = git("rev-parse", "--short=12", "HEAD")
    return head + ("+" if head and git("status", "--porcelain", "-uno", "--", "src") else "")


def trained_agent(decoding: Decoding) -> dict[str, Any]:
    """How an agent's folder was made: its recipe, and what its training ended with."""
    if decoding.agent is None or not is_folder(decoding.agent):
        return {}
    folder = Path(re.sub(r":0?\.[0-9]+$", "", decoding.agent))
    recipe = tomllib.loads((folder / "agent.toml").read_text(encoding="utf-8"))
    recipe["data"].pop("folder", None)  # folders of this machine mean nothing elsewhere
    log = folder / "metrics.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    notes = [note for note in map(json.loads, lines) if note["kind"] == "train"]
    last = notes[-1] if notes else read(folder / "metrics.json")
    return {"agent": {"recipe": recipe, "last": last}}


def headline(result: Mapping[str, Any], quality: str) -> str:
    """The points of a result in few words."""
    parts = []
    for point in result["points"]:
        scores = point["valid"]  # decisions are taken from this line: not those of the test set
        al = "-" if scores["al"] is None else f"{scores['al']:.2f}"
        name = f"{point['point']}: " if point["point"] else ""
        parts.append(f"{name}{scores[quality]:.2f} at {al}")
    return "; ".join(parts)


def line(result: Mapping[str, Any], command: str, quality: str) -> str:
    device = result["machine"].get("device", "")
    return (
        f"| {result['name']} | {result['revision']} | {result['updates']} |"
        f" {result['train_seconds']:.0f} | {device} | {headline(result, quality)} | `{command}` |\n"
    )


def append_log(path: Path, text: str, valid: str, quality: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = not path.exists()
    with path.open("a", encoding="utf-8") as file:
        head = LOG.format(valid=valid, quality=QUALITIES[quality])
        file.write((head if fresh else "") + text)
