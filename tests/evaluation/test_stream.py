"""Documents as streams: nothing is lost on the way back into sentences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simultan.config import Config
from simultan.data.codec import Codec
from simultan.data.text import Pipeline
from simultan.data.vocabulary import SPECIAL, Vocabulary
from simultan.evaluation.instances import read_log
from simultan.evaluation.stream import documents_of, evaluate_streams, spoken
from simultan.streaming.session import Event, Write
from simultan.streaming.translator import Translator, play


class Row:
    def __init__(self) -> None:
        self.words: list[str] = []
        self.read = 0
        self.done = False


class Echo:
    """A stand-in session: says each word in capitals, one word after it was heard."""

    decider = None

    def __init__(self, rows: int) -> None:
        self.rows = [Row() for _ in range(rows)]

    def push(self, text: str, row: int) -> None:
        self.rows[row].words += text.split()

    def close(self, row: int) -> None:
        pass

    def reset(self, row: int) -> None:
        self.rows[row] = Row()

    def advance(self) -> list[tuple[int, Event]]:
        events: list[tuple[int, Event]] = []
        for number, row in enumerate(self.rows):
            if row.done:
                continue
            row.read += 1
            delay = min(row.read + 1, len(row.words))
            events.append((number, Write(row.words[row.read - 1].upper(), delay, [[delay]])))
            row.done = row.read == len(row.words)
        return events


class EchoTranslator(Translator):
    def __init__(self) -> None:
        vocabulary = Vocabulary([*SPECIAL, "a"])
        self.codec, self.config = Codec(Pipeline("words"), vocabulary, vocabulary), Config()

    def session(self, *_: object, rows: int = 1, **__: object) -> Echo:  # type: ignore[override]
        return Echo(rows)


SOURCES = ["Guten Tag!", "Es regnet heute.", "", "Wir gehen.", "Ja."]
REFERENCES = ["guten tag", "es regnet heute", "", "wir gehen", "ja"]


def test_documents() -> None:
    found = documents_of(SOURCES, REFERENCES)
    assert [sources for sources, _ in found] == [SOURCES[:2], SOURCES[3:]]
    assert [len(sources) for sources, _ in documents_of(SOURCES, REFERENCES, 1)] == [1, 1, 1, 1]
    with pytest.raises(ValueError, match="5 source lines against 4"):
        documents_of(SOURCES, REFERENCES[:4])
    with pytest.raises(ValueError, match="empty"):
        documents_of(["", " "], ["", ""])


def test_speech() -> None:
    assert spoken("Guten  Tag, Anna!", "written") == "Guten Tag, Anna!"
    assert spoken("Guten Tag, Anna!", "unpunctuated") == "Guten Tag Anna"
    assert spoken("Guten Tag, Anna!", "lower-case") == "guten tag, anna!"
    assert spoken("Guten Tag, Anna!", "recognised") == "guten tag anna"


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_play(rows: int) -> None:
    texts = ["a b c", "d", "e f"]
    written: list[list[tuple[str, int]]] = [[], [], []]
    done = []
    for number, event, _ in play(Echo(min(rows, 3)), texts):  # type: ignore[arg-type]
        if isinstance(event, Write):
            written[number].append((event.text, event.delay))
        else:
            done.append(number)
    assert written == [
        [("A", 2), ("B", 3), ("C", 3)],
        [("D", 1)],
        [("E", 2), ("F", 2)],
    ]
    assert sorted(done) == [0, 1, 2]


def test_scores_of_streams(tmp_path: Path) -> None:
    documents = documents_of(SOURCES, REFERENCES)
    heard: list[int] = []
    found = evaluate_streams(
        EchoTranslator(), documents, out=tmp_path, speech="recognised", progress=heard.append
    )
    assert sorted(heard) == [3, 5]
    assert (found.documents, found.source_words, found.written_words) == (2, 8, 8)
    assert (found.reference_words, found.longest_silence) == (8, 2)
    assert found.scores.length_ratio == pytest.approx(1)
    log = read_log(tmp_path)
    assert [instance.prediction for instance in log] == [
        "GUTEN TAG", "ES REGNET HEUTE", "WIR GEHEN", "JA",
    ]  # fmt: skip
    # delays count from the beginning of each sentence, and may reach into the next
    assert [instance.delays for instance in log] == [[2, 3], [2, 3, 3], [2, 3], [1]]
    facts = json.loads((tmp_path / "stream.json").read_text())
    assert facts["longest_silence"] == 2
    assert "scores" not in facts
