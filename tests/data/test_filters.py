"""What is left out of training text: evaluation lines, the wrong language, what a pattern finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from simultan.cli import app
from simultan.data.codec import Codec
from simultan.data.filters import Filters
from simultan.data.languages import is_in_other_language
from simultan.data.overlap import Overlap, key
from simultan.data.shards import Corpus
from simultan.data.sources import Skips, TextPair
from simultan.data.speech import Speech

TEXT = TextPair(Path("a.de"), Path("a.en"))


def filtered(pairs: list[tuple[str, str]], filters: Filters) -> tuple[list[int], dict[str, int]]:
    skips = Skips()
    numbered = ((n, source, target) for n, (source, target) in enumerate(pairs, 1))
    kept = [number for number, _, _ in filters.apply(numbered, TEXT, skips)]
    return kept, skips.counts


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_key() -> None:
    assert (
        key("„Wie geht's, Frau Müller?“") == key("wie GEHT'S frau_müller") == "wiegehtsfraumüller"
    )
    assert key("... !") == ""


def test_evaluation_lines_are_left_out_on_either_side(tmp_path: Path) -> None:
    german = write(tmp_path / "news" / "test.de", "Der Hund schläft heute.", "Guten Morgen!")
    english = write(tmp_path / "news" / "test.en", "The dog is asleep today.", "Good morning!")
    overlap = Overlap([german, english])
    pairs = [
        ("der hund schläft, heute", "Today the dog sleeps."),  # other case and punctuation
        ("Heute schläft der Hund.", "The dog is asleep today!"),
        ("Der Hund schläft heute nicht.", "The dog is not asleep today."),  # more than the line
        ("Guten Morgen!", "Good morning!"),  # too short to prove anything
    ]
    assert filtered(pairs, Filters(without=overlap)) == (
        [3, 4],
        {"stands in news/test.de": 1, "stands in news/test.en": 1},
    )


def test_wrong_language() -> None:
    pairs = [
        ("Das ist der Hund und die Katze.", "This is the dog and the cat."),
        ("This is the dog and the cat.", "This is the cat and the dog."),
        ("Das ist der Hund.", "Das ist die Katze und der Hund."),
        ("Die Band The Who", "The band The Who"),  # a name has one frequent word
        ("sudo apt install vim", "sudo apt install vim"),
        ("sudo apt install", "sudo apt install"),
    ]
    assert filtered(pairs, Filters(languages=("de", "en"))) == (
        [1, 4, 6],
        {"in the other language": 2, "not translated": 1},
    )
    assert is_in_other_language("the war of the worlds", "de", "en")
    assert not is_in_other_language("the war of the worlds", "en", "de")
    with pytest.raises(ValueError, match="frequent words of 'vi'"):
        Filters(languages=("en", "vi"))


def test_patterns() -> None:
    pairs = [("ein \\ Strich", "a stroke"), ("kein Strich", "no \\stroke"), ("gut", "good")]
    assert filtered(pairs, Filters(drop=r"\\")) == ([3], {r"\\ found": 2})
    with pytest.raises(ValueError, match="no regular expression"):
        Filters(drop="(")


@pytest.mark.parametrize("longest", [2, 8])
def test_runs_have_at_most_so_many_pairs(longest: int) -> None:
    pairs = [(n, f"{n}.", f"{n}!") for n in range(1, 5_001)]
    speech = Speech(0.5, seed=4, longest=longest)
    runs = [len(source.split()) for _, source, _ in speech.change(pairs, 0, None)]
    assert set(runs) == set(range(1, longest + 1))
    assert speech.counts["pairs_in_runs"] / 5_000 == pytest.approx(0.5, abs=0.04)
    with pytest.raises(ValueError, match="--longest-run"):
        Speech(longest=1)


def prepare(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["prepare", *map(str, arguments)])


def test_the_verb_filters_and_tags(tmp_path: Path) -> None:
    write(
        tmp_path / "a.de", "Das ist der erste Satz.", "Das ist ein Satz der Prüfung.", "Es sind 23."
    )
    write(tmp_path / "a.en", "This is the first one.", "A test has this one.", "They are 23.")
    write(tmp_path / "b.de", "Das ist nicht \\ gut.", "Der Hund ist da.")
    write(tmp_path / "b.en", "This is not good.", "The dog is here.")
    write(tmp_path / "eval.de", "DAS IST EIN SATZ DER PRÜFUNG")
    result = prepare(
        "--source", tmp_path / "a.de", "--target", tmp_path / "a.en", "--tag", "-",
        "--source", tmp_path / "b.de", "--target", tmp_path / "b.en", "--tag", "⟲",
        "--without", tmp_path / "eval.de", "--drop", r"\\", "--check-languages",
        "--spell-numbers", 1, "--longest-run", 8, "--vocabulary", 400, "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "with numbers as they are spoken: 1 sources" in result.output
    corpus, codec = Corpus(tmp_path / "out"), Codec.load(tmp_path / "out")
    lengths = corpus.source.lengths()
    rows = [corpus.source.rows([n], int(lengths[n]))[0].tolist() for n in range(len(corpus))]
    assert [" ".join(codec.source_vocabulary.decode(row)) for row in rows] == [
        "Das ist der erste Satz.",
        "Es sind dreiundzwanzig.",
        "⟲ Der Hund ist da.",
    ]
    prepared = json.loads((tmp_path / "out" / "prepared.json").read_text("utf-8"))
    assert [source["tag"] for source in prepared["sources"]] == ["", "⟲"]
    assert sorted(skip["count"] for skip in prepared["skipped"].values()) == [1, 1]


@pytest.mark.parametrize(
    ("tags", "message"), [(("⟲",), "1 --tag for 2"), (("-", "a b"), "a tag is one word")]
)
def test_tags_are_checked(tmp_path: Path, tags: tuple[str, ...], message: str) -> None:
    texts: list[object] = []
    for name in ("a", "b"):
        write(tmp_path / f"{name}.de", "eins"), write(tmp_path / f"{name}.en", "one")
        texts += ["--source", tmp_path / f"{name}.de", "--target", tmp_path / f"{name}.en"]
    options = [part for tag in tags for part in ("--tag", tag)]
    result = prepare(*texts, *options, "--out", tmp_path / "out")
    assert isinstance(result.exception, ValueError)
    assert message in str(result.exception)
