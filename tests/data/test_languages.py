"""Sentence ends by language: full stops that end something, and those that do not."""

from __future__ import annotations

import pytest

from simultan.data.languages import LANGUAGES, ends_sentence


@pytest.mark.parametrize(
    ("word", "language", "ends"),
    [
        ("Haus.", "de", True), ("Haus", "de", False), ("Haus.“", "de", True),
        ("Haus.«", "de", True), ("nach?‘", "de", True), ("(ja!)", "de", True),
        ("bzw.", "de", False), ("Mio.", "de", False), ("z.B.", "de", False), ("a.D.", "de", False),
        ("31.", "de", False), ("2015.", "de", True), ("„Dr.", "de", False), ("Art.", "de", True),
        ("31.", "en", True), ("31.", "", False), ("No.", "en", True), ("Mr.", "de", False),
        ("e.g.", "en", False), ("bzw.", "en", True), ("said.“", "en", False),
        ("said.”", "en", True), ("Sra.", "es", False), ("Sra.", "pt-BR", False),
        ("maison.»", "fr", True), ("tzw.", "pl", False), ("Haus.“", "de_AT", True),
        ("Bzw.", "de", True), ("...", "de", True), ("x" * 99 + ".", "de", True),
        ("3.5", "de", False), ("nuqneH.", "tlh", True),
    ],
)  # fmt: skip
def test_sentence_ends_by_language(word: str, language: str, ends: bool) -> None:
    assert ends_sentence(word, language) == ends


def test_no_row_spells_an_abbreviation_with_its_full_stop() -> None:
    for name, row in LANGUAGES.items():
        assert not [word for word in row.abbreviations.split() if word.endswith(".")], name
