"""Blind judgement of the 100 sentences: sheets tell nothing, and counts are worked by hand."""

from __future__ import annotations

import csv
import importlib.util
import json
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from simultan.data.overlap import key

RECIPE = Path(__file__).parents[1] / "recipes" / "de-en"


@pytest.fixture(scope="module")
def judge() -> ModuleType:
    spec = importlib.util.spec_from_file_location("judge", RECIPE / "judge.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SENTENCES = [
    {"kind": "a", "source": "eins", "meaning": "one"},
    {"kind": "a", "source": "zwei", "meaning": "two"},
    {"kind": "b", "source": "drei", "meaning": "three"},
]
OUTPUTS = {
    "old": {"default": ["one", "too", "tree"], "lag=5": ["one", "two", "tree"]},
    "new": {"default": ["one", "two", "three"]},
}


def fill(path: Path, right: set[str]) -> None:
    """What a judge would do who calls right what is in the set."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    rows.sort(key=lambda row: row["output"])  # judges sort as they like
    for row in rows:
        row["verdict"] = "ok" if row["output"] in right else " Wrong "
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)


def test_a_sheet_is_blind_and_counted(judge: ModuleType, tmp_path: Path) -> None:
    paths = [tmp_path / "judge1.tsv", tmp_path / "judge2.tsv"]
    for seed, path in enumerate(paths):
        judge.write_sheet(path, judge.draw_sheet(SENTENCES, OUTPUTS, seed))
    texts = [path.read_text("utf-8") for path in paths]
    assert texts[0] != texts[1]  # each judge has an order of their own
    assert sorted(line.split("\t")[1:] for line in texts[0].splitlines()) == sorted(
        line.split("\t")[1:] for line in texts[1].splitlines()
    )
    assert texts[0].splitlines()[0] == "row\tsource\toutput\tverdict\tnote"
    assert len(texts[0].splitlines()) == 1 + 5  # equal outputs are judged once
    assert not any(name in text for text in texts for name in ("old", "new", "lag", "default"))
    fill(paths[0], {"one", "two", "three"})
    fill(paths[1], {"one", "two", "three", "tree"})
    counted = judge.count(paths, SENTENCES)
    assert counted["old", "default"] == {
        "wrong": [2, 1],
        "by all": [2],
        "by some": [3],
        "kinds": {"a": [1, 1], "b": [1, 0]},
    }
    assert counted["old", "lag=5"]["wrong"] == [1, 0]
    assert counted["new", "default"]["wrong"] == [0, 0]
    shown = judge.show(counted, 3)
    assert "| old | default | 2 / 1 of 3 | 1 | a 1/1, b 1/0 |" in shown


def test_an_unfinished_sheet_is_refused(judge: ModuleType, tmp_path: Path) -> None:
    judge.write_sheet(tmp_path / "one.tsv", judge.draw_sheet(SENTENCES, OUTPUTS, 1))
    with pytest.raises(ValueError, match="row 1: '' is neither ok nor wrong"):
        judge.count([tmp_path / "one.tsv"], SENTENCES)


def test_changed_outputs_are_named(judge: ModuleType) -> None:
    old, new = {"default": ["one", "two"]}, {"default": ["one", "too"]}
    assert judge.differences(old, old) == []
    assert judge.differences(old, new) == ["default, sentence 2: 'two' is now 'too'"]


def test_there_are_a_hundred_sentences_of_eight_kinds(judge: ModuleType) -> None:
    sentences = judge.read_sentences()
    assert len({key(entry["source"]) for entry in sentences}) == len(sentences) == 100
    kinds = Counter(entry["kind"] for entry in sentences)
    assert len(kinds) == 8
    assert min(kinds.values()) >= 10
    for entry in sentences:
        assert set(entry) == {"kind", "source", "meaning"}
        bare = entry["source"] == entry["source"].lower() and entry["source"][-1].isalpha()
        assert bare == (entry["kind"] == "recognised")


def test_the_first_edition_was_judged_twice(judge: ModuleType) -> None:
    """The figures of the README are those of the sheets."""
    sheets = sorted((RECIPE / "judged" / "first").glob("*.tsv"))
    counted = judge.count(sheets, judge.read_sentences())
    default, later = (counted["first", setting] for setting in judge.SETTINGS)
    said = "{} and {} of the first edition's 100 sentences wrong at the default and {} and {} at"
    text = " ".join((RECIPE / "README.md").read_text("utf-8").split())
    assert said.format(*default["wrong"], *later["wrong"]) in text
    assert f"; {len(default['by all'])} and {len(later['by all'])} are those" in text


def test_pinned_outputs_are_whole(judge: ModuleType) -> None:
    for path in (RECIPE / "judged").glob("*.json"):
        for outputs in json.loads(path.read_text("utf-8")).values():
            assert len(outputs) == 100
            assert all(outputs)
