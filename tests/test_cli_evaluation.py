"""The verbs evaluate, score and plot from the command line."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import simultan
from simultan import cli
from simultan.data.codec import Codec
from simultan.data.text import Pipeline
from simultan.data.vocabulary import SPECIAL, Vocabulary
from simultan.streaming.translator import Translation

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`simultan ARGUMENTS`: exit status, standard output, standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["simultan", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return call


class Echo:
    """Says each word again as soon as it is heard."""

    def __init__(self) -> None:
        vocabulary = Vocabulary([*SPECIAL, "one", "two", "three", "four", "five"])
        self.codec = Codec(Pipeline("words"), vocabulary, vocabulary)

    def default_rows(self, *_: object) -> int:
        return 4

    def translate(self, sentences: Sequence[str], *_: object, **__: object) -> list[Translation]:
        out = []
        for sentence in sentences:
            words = sentence.split()
            delays = [i + 1 for i in range(len(words))]
            out.append(
                Translation(
                    words=words,
                    delays=delays,
                    elapsed=[0.01 * d for d in delays],
                    tokens=self.codec.encode_target(sentence)[:-1],
                    token_delays=delays,
                    token_heads=[[[d]] for d in delays],
                )
            )
        return out


def test_evaluate_score_plot(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simultan, "load", lambda *_, **__: Echo(), raising=False)
    text = tmp_path / "text"
    text.write_text("one two three four\nfive four three two one\n")
    options = ("--source", text, "--reference", text, "--out", tmp_path / "echo")
    status, out, error = run("evaluate", "model", *options, "--tokenized", "--system", "echo")
    assert status == 0
    assert "docs/metrics.md says what these names mean" in error
    explained = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text("utf-8")
    shown = [line.split()[0] for line in out.splitlines() if line]
    assert len(shown) > 10
    assert [n for n in shown if f"`{n}`" not in explained and f"**{n}" not in explained
            and f"**{n.upper()}," not in explained] == []  # fmt: skip
    stored = json.loads((tmp_path / "echo" / "scores.json").read_text())
    assert stored["al"] == 1.0
    assert stored["bleu"] == pytest.approx(100.0)
    assert "tok:none" in out

    status, out, _ = run("score", tmp_path / "echo", "--out", tmp_path / "again.json")
    assert status == 0
    again = json.loads((tmp_path / "again.json").read_text())
    assert again["dal"] == stored["dal"]
    assert "tok:13a" in again["bleu_signature"]
    assert re.search(r"^seconds_per_source_word +0\.\d{6}$", out, re.MULTILINE)

    status, out, _ = run("plot", tmp_path / "echo", "--out", tmp_path / "curve")
    assert (status, out.split()) == (
        0,
        [f"{tmp_path}/curve.{end}" for end in ("png", "svg", "pdf")],
    )
    status, _, _ = run("plot", tmp_path / "echo", "--sentence", 1, "--out", tmp_path / "path")
    assert status == 0
    assert (tmp_path / "path.svg").exists()


def test_bad_input_is_one_line(tmp_path: Path, run: Run) -> None:
    text = tmp_path / "instances.log"
    text.write_text("{")
    commands: list[tuple[tuple[object, ...], str]] = [
        (("score", tmp_path / "none"), "no such file"),
        (("score", tmp_path), "line 1: not JSON"),
        (("plot", tmp_path, "--out", tmp_path / "x"), "simultan evaluate"),
        # it is said before the model is loaded and the test set is translated
        (("evaluate", "none", "--source", text, "--reference", text, "--out", text), "is a file"),
    ]
    for command, message in commands:
        status, _, error = run(*command)
        assert status == 2
        assert message in error
        assert error.count("\n") == 1
