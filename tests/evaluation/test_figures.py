"""Figures: what they are drawn from, and that both files come out whole."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from simultan.evaluation.figures import draw_path, draw_tradeoff, find_runs
from simultan.evaluation.instances import Instance


def write_run(folder: Path, al: float, **changes: object) -> Path:
    folder.mkdir(parents=True)
    scores = {"system": "", "bleu": 20 + al, "ap": 0.5, "al": al, "dal": al + 1}
    (folder / "scores.json").write_text(json.dumps(scores | {"latency_unit": "words"} | changes))
    return folder


def svg_text(files: list[Path]) -> str:
    png, svg, pdf = files
    assert pdf.read_bytes().startswith(b"%PDF")
    assert png.read_bytes().startswith(b"\x89PNG")
    return " ".join(ElementTree.parse(svg).getroot().itertext())


def test_runs_of_one_system_are_one_curve(tmp_path: Path) -> None:
    for al in (3.0, 1.0, 2.0):
        write_run(tmp_path / "mma" / f"{al}", al)
    named = write_run(tmp_path / "other", 2.0, system="wait-k")
    runs = find_runs([tmp_path / "mma", named])
    assert [run.system for run in runs] == ["mma", "mma", "mma", "wait-k"]
    assert {run.system for run in find_runs([tmp_path / "mma", named], ["x", "y"])} == {"x", "y"}
    files = draw_tradeoff(runs, tmp_path / "figures" / "curve.png")
    assert [file.name for file in files] == ["curve.png", "curve.svg", "curve.pdf"]
    text = svg_text(files)
    for wanted in ("mma", "wait-k", "Average Lagging (words)", "Average Proportion", "BLEU"):
        assert wanted in text
    found = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert found == ["curve.pdf", "curve.png", "curve.svg"]
    one = svg_text(draw_tradeoff(runs, tmp_path / "one", latencies=["AL"]))
    assert "Average Lagging (words)" in one
    assert "Average Proportion" not in one


def test_bad_runs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="simultan evaluate"):
        find_runs([tmp_path])
    run = write_run(tmp_path / "a", 1.0, bleu=None)
    with pytest.raises(ValueError, match="score it with references"):
        draw_tradeoff(find_runs([run]), tmp_path / "figure")
    with pytest.raises(ValueError, match="one for each"):
        find_runs([run], ["x", "y"])
    pair = [write_run(tmp_path / "b", 1.0), write_run(tmp_path / "c", 1.0, latency_unit="subwords")]
    with pytest.raises(ValueError, match="rescore"):
        draw_tradeoff(find_runs(pair), tmp_path / "figure")
    with pytest.raises(ValueError, match="'bleu' is not a latency metric"):
        draw_tradeoff(find_runs(pair), tmp_path / "figure", latencies=["bleu"])
    (run / "scores.json").write_text("{")
    with pytest.raises(ValueError, match="not a JSON object"):
        find_runs([run])


def test_path_with_heads_and_pieces(tmp_path: Path) -> None:
    instance = Instance(
        index=0,
        prediction="un deux",
        delays=[1, 2],
        elapsed=[0, 0],
        source="one two",
        source_tokens=["o", "ne▁", "two▁"],
        target_tokens=["un▁", "de", "ux▁"],
        token_delays=[2, 3, 3],
        token_heads=[[[1, 2], [1, 1]], [[2, 3], [3, 3]], [[3, 4], [3, 4]]],  # 4: end of sequence
    )
    text = svg_text(draw_path(instance, tmp_path / "path"))
    for wanted in ("o·", "ne", "de·", "layer 2", "(end)"):
        assert wanted in text


def test_path_of_another_tool_is_in_words(tmp_path: Path) -> None:
    instance = Instance(0, "un deux", [1, 2], [0, 0], source="one two", source_length=2)
    text = svg_text(draw_path(instance, tmp_path / "path"))
    assert "deux" in text
    assert "layer" not in text
    with pytest.raises(ValueError, match="no path"):
        draw_path(Instance(3, "", [], [], source="one"), tmp_path / "path")
    with pytest.raises(ValueError, match="2 words and 1 delays"):
        draw_path(Instance(3, "a b", [1], [0], source="one"), tmp_path / "path")
