"""One call for a curve: points, folders, table, figure, lags.json."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "streaming"))

import small
from typer.testing import CliRunner

import simultan
from simultan.cli import app
from simultan.config import Config
from simultan.evaluation.curve import (
    Point,
    evaluate_curve,
    folder_name,
    measure_lags,
    parse_points,
    render_table,
)
from simultan.latency import METRICS
from simultan.streaming.decoding import Decoding
from simultan.streaming.lags import UNMEASURED, Lags
from simultan.streaming.translator import Translator

SOURCES = [small.sentence(12, seed) for seed in range(4)]
REFERENCES = ["k l m n"] * 4


def translator(policy: str, lags: Lags = UNMEASURED) -> Translator:
    return Translator(small.make(policy, "transformer", seed=3), Config(), small.CODEC, lags)


def test_points_are_written_as_people_would() -> None:
    assert parse_points(["lag=3,4.5"]) == [Decoding(lag=3), Decoding(lag=4.5)]
    assert parse_points(["k=1,3 k=3", "k=5"]) == [Decoding(k=k) for k in (1, 3, 5)]
    agents = parse_points(["wait-k:3 static:3,2"])
    assert [point.agent for point in agents] == ["wait-k:3", "static:3,2"]
    assert parse_points(["lag=3,4,beam=2 lag=4,beam=2"]) == [
        Decoding(lag=3, beam=2),
        Decoding(lag=4, beam=2),
    ]
    searched = parse_points(["wait-k:3,beam=2 static:3,2,beam=4"])
    assert [str(point) for point in searched] == ["wait-k:3,beam=2", "static:3,2,beam=4"]
    with pytest.raises(ValueError, match=r"^decoding 'lag=3,beam=x'"):
        parse_points(["lag=3,beam=x"])
    with pytest.raises(ValueError, match="which points"):
        parse_points([" "])
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        parse_points(["threshold=0.5,2"])


def test_a_curve_has_a_folder_for_each_point_a_table_and_a_figure(tmp_path: Path) -> None:
    decodings = parse_points(["k=1,40"])
    done = []
    points = evaluate_curve(
        translator("wait-k"), SOURCES, REFERENCES, tmp_path, decodings,
        latencies=["LAAL", "dal"], progress=done.append,
    )  # fmt: skip
    assert sum(done) == 8
    assert [folder_name(point.decoding) for point in points] == ["k-1", "k-40"]
    lags = [json.loads((tmp_path / f"k-{k}/scores.json").read_text())["al"] for k in (1, 40)]
    assert lags[0] < lags[1]
    assert (tmp_path / "curve.tsv").read_text() == render_table(points)
    header, *rows = [line.split("\t") for line in render_table(points).splitlines()]
    assert header == ["decoding", "bleu", "chrf", "length", *METRICS]
    assert [row[0] for row in rows] == ["k=1", "k=40"]
    assert float(rows[0][5]) == pytest.approx(lags[0], abs=0.006)
    for kind in ("png", "svg", "pdf"):
        assert (tmp_path / f"curve.{kind}").stat().st_size
    drawn = (tmp_path / "curve.svg").read_text("utf-8")
    assert "Length-Adaptive" in drawn
    assert "Proportion" not in drawn


def test_what_is_wrong_is_told_before_anything_is_translated(tmp_path: Path) -> None:
    texts = SOURCES, REFERENCES, tmp_path / "out"
    with pytest.raises(ValueError, match=r"policy is wait-k; it takes k=3"):
        evaluate_curve(translator("wait-k"), *texts, parse_points(["k=1 threshold=0.5"]))
    with pytest.raises(ValueError, match="not a latency metric"):
        evaluate_curve(translator("wait-k"), *texts, parse_points(["k=1"]), latencies=["XL"])
    assert not (tmp_path / "out").exists()


def point(text: str, behind: float, like: Point) -> Point:
    scores = dataclasses.replace(like.scores, latency={**like.scores.latency, "al": behind})
    return Point(Decoding.parse(text), scores)


def test_lags_are_what_was_measured(tmp_path: Path) -> None:
    learned = translator("mma-il")
    (like,) = evaluate_curve(learned, SOURCES, REFERENCES, tmp_path, [Decoding(threshold=0.5)])
    measured = [point("threshold=0.2", 2.0, like), point("threshold=0.8", 5.00049, like)]
    assert measure_lags(learned, measured) == Lags(((0.2, 2.0), (0.8, 5.0)))
    again = translator("mma-il", Lags(((0.2, 2.0), (0.8, 6.0))))
    found = measure_lags(again, [point("lag=2", 2.5, like), point("lag=6", 7.0, like)]).points
    assert found == ((pytest.approx(0.2), 2.5), (pytest.approx(0.8), 7.0))
    searched = [point(f"{one.decoding},beam=2", one.scores.latency["al"], one) for one in measured]
    assert measure_lags(learned, searched) == Lags(((0.2, 2.0), (0.8, 5.0)), beam=2)
    with pytest.raises(ValueError, match="as many beams: --beam 2"):
        measure_lags(learned, [measured[0], searched[1]])
    with pytest.raises(ValueError, match="at least two thresholds"):
        measure_lags(learned, measured[:1])
    with pytest.raises(ValueError, match="which is wait-k"):
        measure_lags(translator("wait-k"), measured)


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = translator("offline")
    monkeypatch.setattr(simultan, "load", lambda *_, **__: model)
    (tmp_path / "s").write_text("\n".join(SOURCES) + "\n")
    (tmp_path / "r").write_text("\n".join(REFERENCES) + "\n")
    texts = ["--source", str(tmp_path / "s"), "--reference", str(tmp_path / "r")]

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(
            app, ["evaluate", *arguments, *texts, "--out", str(tmp_path / "o")]
        )
        return done.output if done.exit_code == 0 else str(done.exception)

    output = run("m", "--at", "wait-k:1 wait-k:3", "--at", "agreement:2")
    assert [name for name in ("wait-k:1", "wait-k:3", "agreement:2") if name in output] != []
    assert {path.name for path in (tmp_path / "o").iterdir()} == {
        "wait-k-1", "wait-k-3", "agreement-2", "curve.tsv", "curve.png", "curve.svg", "curve.pdf",
    }  # fmt: skip
    assert "choose one of them" in run("m", "--at", "wait-k:1", "--agent", "wait-k:3")
    assert "--save-lags needs points" in run("m", "--save-lags")
    assert "not a folder of yours" in run("de-en", "--save-lags", "--at", "threshold=0.1,0.2")
    learned = translator("mma-il")
    monkeypatch.setattr(simultan, "load", lambda *_, **__: learned)
    refused = run(str(tmp_path), "--save-lags", "--at", "threshold=0.5")
    assert "at least two thresholds" in refused
    assert not (tmp_path / "lags.json").exists()
