"""docs/architecture.md: its walks lead through the code as it is, and its examples run."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from test_imports import DEPTH, SOURCE
from typer.testing import CliRunner

from simultan import cli, config, latency
from simultan.evaluation.figures import draw_tradeoff, find_runs
from simultan.evaluation.instances import Instance
from simultan.evaluation.scores import score, write_scores
from simultan.train.loop import fit

PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text("utf-8")
WALKS = PAGE.split("## Four walks\n")[1].split("\n## ")[0].split("\n### ")[1:]
STEP = re.compile(r"^( *)- `([\w/]+\.py)` `([\w.]+)`: ", re.MULTILINE)


def example(heading: str) -> str:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]


def defined(file: str) -> set[str]:
    """Functions of a file and methods of its classes."""
    names = set()
    for node in ast.parse((SOURCE / file).read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if hasattr(part, "name")}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return names


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.split("\n")[0])
def test_a_walk_names_what_is_there_and_never_goes_up(walk: str) -> None:
    steps = STEP.findall(walk)
    assert len(steps) == len(re.findall(r"^ *- ", walk, re.MULTILINE)) > 8
    above: list[tuple[int, int]] = []  # indentation and layer of the callers
    for spaces, file, name in steps:
        assert name in defined(file), f"{file} has no {name}"
        layer = DEPTH[file.removesuffix(".py").split("/")[0]]
        while above and above[-1][0] >= len(spaces):
            above.pop()
        assert not above or above[-1][1] <= layer, f"{file} {name} is above its caller"
        above.append((len(spaces), layer))


def test_there_are_four_walks() -> None:
    names = [walk.split("\n")[0] for walk in WALKS]
    assert names == ["A training batch", "A live word", "A websocket message", "A test set"]


def test_the_table_names_files_that_are_there() -> None:
    table = PAGE.split("\n## Where new parts go\n")[1].split("\n## ")[0]
    found = re.findall(r"`([\w/]+(?:\.py|/))`", table)
    assert len(found) > 12
    for name in found:
        assert (SOURCE / name).exists() or name in ("verbs/NAME.py", "tests/"), name


def test_a_new_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "METRICS", dict(latency.METRICS))
    exec(example("A new metric"), {})
    # two words are read, then one, then two: five in three stretches
    log = [
        Instance(0, "a b c d", [2, 2, 3, 5], [0.0] * 4, 4, "a b c d", "v w x y z", 5),
        Instance(1, "a", [1], [0.0], 1, "a", "v", 1),
    ]
    scores = score(log)
    assert scores.latency["cw"] == pytest.approx((5 / 3 + 1) / 2)
    write_scores(tmp_path / "run" / "scores.json", scores)
    svg = draw_tradeoff(find_runs([tmp_path / "run"]), tmp_path / "figure", latencies=["CW"])[1]
    assert "Consecutive Wait (words)" in svg.read_text("utf-8")
    recipe = config.parse("", ["train.latency_metric=CW", f"data.folder={tmp_path / 'none'}"])
    with pytest.raises(OSError, match="none"):  # not a word about the metric
        fit(recipe, tmp_path / "out", device="cpu")


def test_a_new_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "count.py").write_text(example("A new verb"), "utf-8")
    verbs: Any = importlib.import_module("simultan.verbs")
    monkeypatch.setattr(verbs, "__path__", [*verbs.__path__, str(tmp_path)])
    monkeypatch.setitem(cli.VERBS, "count", "Count words.")
    cli.app.command("count")(lambda: None)
    try:
        (tmp_path / "text").write_text("one two\nthree\n", "utf-8")
        done = CliRunner().invoke(cli.app, ["count", str(tmp_path / "text"), "--longest", "1"])
        assert (done.exit_code, done.output) == (0, "1\n")
        assert (
            "Leave out lines of more words" in CliRunner().invoke(cli.app, ["count", "-h"]).output
        )
    finally:
        cli.app.registered_commands.pop()
        sys.modules.pop("simultan.verbs.count", None)
