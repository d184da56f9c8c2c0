"""The model in the box: what it writes is pinned, word for word and delay for delay.

`python tests/test_shipped_model.py` pins what the model in the box writes now.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

import simultan
from simultan import boxed
from simultan.streaming.session import Write
from simultan.streaming.translator import Translator

PINS = Path(__file__).with_name("shipped_de-en.json")
LARGEST = 60 * 2**20  # bytes of the whole folder
SENTENCES = [
    "Guten Morgen, meine Damen und Herren!",
    "Ich habe gestern ein gutes Buch gelesen.",
    "Wir müssen diese Frage noch vor dem Sommer gemeinsam beantworten.",
    "Weißt du, wann der nächste Zug nach Hamburg fährt?",
    "Der Bericht, den die Kommission im März vorgelegt hat, ist leider nicht vollständig.",
    "Klicken Sie auf die Schaltfläche, um die Datei zu speichern.",
    "Meine Schwester, die seit drei Jahren in Spanien lebt, hat mir einen Brief geschrieben.",
    "Es regnet. Wir bleiben heute zu Hause.",
    "guten tag mein name ist anna ich komme aus berlin und arbeite als ärztin",
    "Niemand hätte gedacht, dass das Spiel so ausgehen würde.",
]


@pytest.fixture(scope="module")
def translator() -> Translator:
    assert boxed.default() == "de-en", "models/de-en has no weights"
    return simultan.load("de-en")


@pytest.mark.usefixtures("kernels_or_none")
@pytest.mark.parametrize("threads", [1, 2])
def test_ten_sentences_are_as_pinned(threads: int) -> None:
    assert PINS.exists(), "run `python tests/test_shipped_model.py` and read what it pins"
    pinned = json.loads(PINS.read_text(encoding="utf-8"))
    assert [entry["source"] for entry in pinned] == SENTENCES
    try:
        results = simultan.load("de-en", threads=threads).translate(SENTENCES)
    finally:
        torch.set_num_threads(1)
    for entry, result in zip(pinned, results, strict=True):
        assert " ".join(result.words) == entry["text"]
        assert result.delays == entry["delays"]


def test_int8_needs_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is the same on a CPU that has none."""
    with_kernels = simultan.load("de-en", quantize="int8").translate(SENTENCES)
    monkeypatch.setattr("simultan.model.kernels.find", lambda: None)
    without = simultan.load("de-en", quantize="int8").translate(SENTENCES)
    assert [result.words for result in with_kernels] == [result.words for result in without]


def test_a_flipped_bit_would_be_noticed() -> None:
    """The folder has a sum of its weights; `simultan export` writes it, loading looks at it."""
    folder = boxed.resolve("de-en")
    digest, name = (folder / "SHA256SUMS").read_text("ascii").split()
    assert name == "weights.safetensors"
    assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_prefix_is_never_taken_back(translator: Translator, sentence: str) -> None:
    words = sentence.split()
    whole = translator.translate([sentence])[0]
    session = translator.session(segment=False)
    said: list[str] = []
    for heard, word in enumerate(words, 1):
        for event in session.feed(word):
            if isinstance(event, Write):
                said += event.text.split()
                assert event.delay <= heard  # nothing was written before it was heard
        # all that needs no more than was heard is there, and nothing else has been said
        assert said == whole.words[: len(said)]
    said += [w for e in session.finish() if isinstance(e, Write) for w in e.text.split()]
    assert said == whole.words
    assert whole.delays == sorted(whole.delays)
    assert 1 <= whole.delays[0] <= whole.delays[-1] <= len(words)


def test_it_is_small_and_has_its_card(translator: Translator) -> None:
    files = [path for path in boxed.resolve("de-en").iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= LARGEST
    assert {"MODEL_CARD.md", "config.toml", "weights.safetensors"} <= {p.name for p in files}


def test_a_prefix_hides_what_follows(translator: Translator) -> None:
    """Another continuation: what was written before it is the same."""
    start, *ends = "Der Bericht der Kommission ist", "leider nicht vollständig.", "sehr gut."
    session = [translator.session(segment=False) for _ in ends]
    early = [[e for e in s.feed(start) if isinstance(e, Write)] for s in session]
    assert early[0] == early[1]


def pin() -> None:
    results = simultan.load("de-en").translate(SENTENCES)
    entries = [
        {"source": source, "text": " ".join(result.words), "delays": result.delays}
        for source, result in zip(SENTENCES, results, strict=True)
    ]
    text = json.dumps(entries, ensure_ascii=False, indent=1)
    PINS.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    pin()
