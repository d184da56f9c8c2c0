"""Numbers as they are spoken, each worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simultan.data.speech import Speech
from simultan.data.spoken import spell_number, spell_ordinal, spell_year, speller


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "null"),
        (1, "eins"),
        (12, "zwölf"),
        (16, "sechzehn"),
        (21, "einundzwanzig"),
        (77, "siebenundsiebzig"),
        (100, "hundert"),
        (101, "hunderteins"),
        (999, "neunhundertneunundneunzig"),
        (1_000, "tausend"),
        (1_984, "tausendneunhundertvierundachtzig"),
        (21_000, "einundzwanzigtausend"),
        (101_006, "hunderteintausendsechs"),
        (1_000_000, "eine Million"),
        (2_500_000, "zwei Millionen fünfhunderttausend"),
        (1_000_000_007, "eine Milliarde sieben"),
    ],
)
def test_cardinals(number: int, words: str) -> None:
    assert spell_number(number) == words


def test_years_and_days() -> None:
    assert spell_year(1984) == "neunzehnhundertvierundachtzig"
    assert spell_year(1900) == "neunzehnhundert"
    assert spell_year(2015) == "zweitausendfünfzehn"
    assert spell_year(1066) == "tausendsechsundsechzig"
    days = {1: "erste", 2: "zweite", 3: "dritte", 7: "siebte", 8: "achte", 19: "neunzehnte"}
    days |= {20: "zwanzigste", 31: "einunddreißigste"}
    assert {day: spell_ordinal(day) for day in days} == days


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        (
            "Am 3. Mai 1984 kamen 23 Leute.",
            "Am dritten Mai neunzehnhundertvierundachtzig kamen dreiundzwanzig Leute.",
        ),
        ("Der 21. September.", "Der einundzwanzigste September."),
        ("Es kostet 12,50 €.", "Es kostet zwölf Euro fünfzig."),
        ("Für 1,05 Euro, bitte", "Für ein Euro fünf, bitte"),
        ("um 3,5 % (oder 5%)", "um drei Komma fünf Prozent (oder fünf Prozent)"),
        ("um 14:30 Uhr, um 9.05 Uhr.", "um vierzehn Uhr dreißig, um neun Uhr fünf."),
        ("um 1:00 Uhr", "um ein Uhr"),
        ("1.250 Menschen", "tausendzweihundertfünfzig Menschen"),
        # what could be spoken in several ways stays
        ("1 Kind im 2. Stock", "1 Kind im 2. Stock"),
        ("Zimmer A380, 0171 234 567", "Zimmer A380, 0171 234 567"),
        ("Version 1.2.3 auf 192.168.0.1", "Version 1.2.3 auf 192.168.0.1"),
        ("Das 40. Mal am 45. Mai", "Das 40. Mal am 45. Mai"),
        ("1234567", "1234567"),
    ],
)
def test_german(written: str, spoken: str) -> None:
    assert speller("de")(written) == spoken


@given(st.text())
def test_any_text_can_be_spelled(text: str) -> None:
    once = speller("de-AT")(text)
    assert speller("de")(" ".join(word for word in text.split() if word.isalpha())) == " ".join(
        word for word in text.split() if word.isalpha()
    )
    assert bool(once) == bool(text.split())


@given(st.integers(0, 10**12 - 1))
def test_every_number_has_its_own_words(number: int) -> None:
    other = (number * 7919 + 1) % 10**12
    assert (spell_number(number) == spell_number(other)) == (number == other)


def test_languages_that_are_not_there() -> None:
    with pytest.raises(ValueError, match="spelled in de, not in 'en'"):
        speller("en")
    with pytest.raises(ValueError, match="12 digits"):
        spell_number(10**12)


def test_a_share_of_the_sources_with_numbers_is_spelled() -> None:
    pairs = [(n, f"Es sind {n}." if n % 2 else "Es sind viele.", str(n)) for n in range(2, 4_002)]
    speech = Speech(spelled=0.25, seed=2, language="de")
    changed = list(speech.change(pairs, 0, None))
    different = [pair for pair, before in zip(changed, pairs, strict=True) if pair != before]
    assert len(different) == speech.counts["spelled"] == pytest.approx(500, abs=60)
    assert all(not any(c.isdigit() for c in source) for _, source, _ in different)
    assert [target for _, _, target in changed] == [target for _, _, target in pairs]
    with pytest.raises(ValueError, match="--spell-numbers"):
        Speech(spelled=1.5, language="de")
