"""Text as it comes from speech: what is joined, what loses case and punctuation, and what never."""

from __future__ import annotations

import json
import lzma
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from simultan.cli import app
from simultan.data.codec import Codec
from simultan.data.corpus import prepare
from simultan.data.shards import Corpus
from simultan.data.sources import TextPair
from simultan.data.speech import KINDS, LONGEST_RUN, Speech, as_recognised, read_documents


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("Guten Tag, Frau Müller!", "guten tag frau müller"),
        ("„Es kostet 3,5 % mehr“ – sagte er.", "es kostet 3,5 % mehr sagte er"),
        ("E-Mail, geht's? (Ja.)", "e-mail geht's ja"),
        ("... !", ""),
    ],
)
def test_as_recognised(text: str, result: str) -> None:
    assert as_recognised(text) == result
    assert as_recognised(text, bare=False) == text.lower()
    assert as_recognised(text, lower=False).lower() == result


@given(st.text())
def test_recognised_text_stays_as_it_is(text: str) -> None:
    once = as_recognised(text)
    assert as_recognised(once) == once
    assert len(once.split()) <= len(text.split())


def lines(count: int) -> Iterator[tuple[int, str, str]]:
    return ((n, f"Quelle {n}.", f"Target {n}.") for n in range(1, count + 1))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.floats(0, 1), st.integers(0, 99))
def test_nothing_is_lost_and_no_document_is_crossed(
    sizes: list[int], join: float, seed: int
) -> None:
    documents = array("l", [d for d, size in enumerate(sizes) for _ in range(size)])
    speech = Speech(join, seed=seed)
    joined = list(speech.change(lines(len(documents)), 0, documents))
    assert " ".join(source for _, source, _ in joined) == " ".join(
        source for _, source, _ in lines(len(documents))
    )
    for number, source, target in joined:
        numbers = [int(word[:-1]) for word in source.split()[1::2]]
        assert numbers[0] == number
        assert len(numbers) <= 4
        assert len({documents[n - 1] for n in numbers}) == 1
        assert target == source.replace("Quelle", "Target")
    runs = [source for _, source, _ in joined if source.count(".") > 1]
    assert speech.counts["runs"] == len(runs)
    assert speech.counts["pairs_in_runs"] == sum(run.count(".") for run in runs)
    again = list(Speech(join, seed=seed).change(lines(len(documents)), 0, documents))
    assert again == joined


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_shares(share: float) -> None:
    speech = Speech(share, share, seed=3)
    pairs = list(speech.change(lines(20_000), 0, None))
    assert speech.counts["pairs_in_runs"] / 20_000 == pytest.approx(share, abs=0.01)
    counts = [speech.counts[kind] for kind in KINDS]
    assert sum(counts) / len(pairs) == pytest.approx(share, abs=0.02)
    assert max(counts) < 1.3 * min(counts)
    assert sum("quelle" in source for _, source, _ in pairs) == counts[0] + counts[2]
    assert sum("." not in source for _, source, _ in pairs) == counts[1] + counts[2]
    assert all(target.startswith("Target") and target[-1] == "." for _, _, target in pairs)


def test_runs_stop_at_gaps_and_stay_short() -> None:
    odd = [pair for pair in lines(99) if pair[0] % 2]
    assert list(Speech(1.0).change(odd, 0, None)) == odd
    words = "w " * (LONGEST_RUN // 2)
    long = [(n, words, "t") for n in range(1, 50)]
    assert max(len(s.split()) for _, s, _ in Speech(1.0).change(long, 0, None)) == LONGEST_RUN
    assert list(Speech(0, 1.0).change([(1, "...", "dots")], 0, None)) == [(1, "...", "dots")]


def text(folder: Path, meta: str) -> TextPair:
    (folder / "a.de").write_text("".join(f"Das, Nr{n}.\n" for n in range(6)))
    (folder / "a.en").write_text("".join(f"That, no{n}.\n" for n in range(6)))
    (folder / "a.meta.xz").write_bytes(lzma.compress(meta.encode()))
    return TextPair(folder / "a.de", folder / "a.en", 1.0, frozenset(), folder / "a.meta.xz", 1)


def test_prepare_joins_within_documents(tmp_path: Path) -> None:
    pair = text(tmp_path, "one\tx\none\ty\none\tx\none\tx\ntwo\tx\none\tz\n")
    assert read_documents(pair) == array("l", [0, 0, 0, 0, 1, 2])
    results = []
    for name in ("first", "second"):
        made = prepare(tmp_path / name, [pair], vocabulary=320, join=1.0, asr=1.0, seed=7)
        results.append((made, (tmp_path / name / "train.source.tokens.npy").read_bytes()))
    assert results[0] == results[1]
    made = results[0][0]
    assert made.speech["pairs_in_runs"] >= 2
    assert sum(made.speech[k] for k in ("lower_cased", "unpunctuated", "both")) == len(
        Corpus(tmp_path / "first")
    )
    assert made.pairs["train"] == 6 - made.speech["pairs_in_runs"] + made.speech["runs"]
    stored = json.loads((tmp_path / "first" / "prepared.json").read_text())
    assert stored["speech"] == made.speech
    assert stored["settings"]["join"] == 1.0
    corpus, codec = Corpus(tmp_path / "first"), Codec.load(tmp_path / "first")
    row = corpus.target.rows([0], int(corpus.target.lengths()[0]))[0]  # type: ignore[arg-type]
    assert codec.decode_target(row.tolist()).startswith("That, no0. That, no1.")


def test_prepare_notes_where_nothing_is_to_be_joined(tmp_path: Path) -> None:
    pair = text(tmp_path, "one\none\none\none\ntwo\ntwo\n")
    lines = pair.target.read_text().splitlines()
    pair.target.write_text("\n".join([lines[0], "", *lines[2:], ""]))  # the second is left out
    made = prepare(tmp_path / "out", [pair, pair], vocabulary=320, note_begins=True)
    assert made.pairs["train"] == 10
    begins = np.load(tmp_path / "out" / "train.begins.npy")
    assert begins.tolist() == 2 * [True, True, False, True, False]


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    pair = text(tmp_path, "one\n" * 5)
    with pytest.raises(ValueError, match=r"a.meta.xz has 5 lines and .*a.de has 6"):
        prepare(tmp_path / "out", [pair], join=1.0)
    with pytest.raises(ValueError, match=r"--join and --asr lie in"):
        prepare(tmp_path / "out", [pair], join=1.5)


def test_the_verb(tmp_path: Path) -> None:
    pair = text(tmp_path, "one\n" * 6)
    files = ["--source", pair.source, "--target", pair.target, "--out", tmp_path / "out"]
    files += ["--vocabulary", 320, "--join", 1, "--asr", 1]

    def run(*more: object) -> Result:
        return CliRunner().invoke(app, ["prepare", *map(str, [*files, *more])])

    done = run("--documents", pair.documents, "--document-columns", 1)
    assert done.exit_code == 0, done.output
    assert "joined: 6 pairs into" in done.output
    assert "like speech recognition:" in done.output
    wrong = run("--documents", "-", "--documents", "-", "--overwrite")
    assert "2 --documents for 1 training texts" in str(wrong.exception)
    missing = run("--documents", tmp_path / "none", "--overwrite")
    assert "none: no such file" in str(missing.exception)
