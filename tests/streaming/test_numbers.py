"""Numbers: kept, put right, and never lost."""

from __future__ import annotations

import pytest

from simultan.streaming.numbers import Numbers, convert, digit_groups


@pytest.mark.parametrize(
    ("number", "english"),
    [
        ("1.250.000", "1,250,000"), ("3,5", "3.5"), ("1.234,56", "1,234.56"), ("2023", "2023"),
        ("31.12.2020", "31.12.2020"), ("14:30", "14:30"), ("1,2,3", "1,2,3"), ("2.0", "2.0"),
    ],
)  # fmt: skip
def test_separators(number: str, english: str) -> None:
    assert convert(number, "de", "en") == english
    assert convert(number, "de", "fr") == number
    assert convert(number, "", "") == number
    assert digit_groups(english) == digit_groups(number)


def write(source: str, target: str) -> str:
    numbers = Numbers("de", "en")
    for place, word in enumerate(source.split(), 1):
        numbers.hear(word, place)
    words = [numbers.check(word, 99) for word in target.split()]
    return " ".join([*words, *numbers.rest()])


@pytest.mark.parametrize(
    ("source", "target", "right"),
    [
        ("Das kostet 5 Euro", "That costs EUR 5.32.", "That costs EUR 5."),
        ("kostet 1.250.000 Euro", "costs EUR 1.250,000", "costs EUR 1,250,000"),
        ("kostet 1.250.000 Euro", "costs EUR 1250000.", "costs EUR 1,250,000."),
        ("am 31. März 1685", "on 31 March", "on 31 March 1685"),
        ("am 31. März 1685", "on 31 March 1585.", "on 31 March 1685."),
        ("1685 und 1750", "1750 and 1685", "1750 and 1685"),
        ("von 2005 bis 2006", "from 2005/2006", "from 2005/2006"),
        ("1 250 000 Euro", "EUR 1 250 000", "EUR 1 250 000"),
        ("1.250.000 Euro", "EUR 1 250 000", "EUR 1 250 000"),
        ("etwa 2000 Autos", "some 2 000 cars", "some 2 000 cars"),
        ("etwa 2000 Autos", "some 2 cars", "some 2 cars 2000"),
        ("am 2. Tag", "on the second day", "on the second day"),
        ("3 Hunde", "(Three dogs), three", "(3 dogs), three"),
        ("dreißig Hunde", "30 dogs", "30 dogs"),
        ("5 Hunde und dreißig", "five dogs and 30", "5 dogs and 30"),
        ("die 1990er Jahre", "the 1990s", "the 1990s"),
        ("5 5", "5", "5 5"),
    ],
)
def test_numbers_are_kept(source: str, target: str, right: str) -> None:
    assert write(source, target) == right


def test_a_number_that_was_not_heard_yet_is_left_alone() -> None:
    numbers = Numbers("de", "en")
    numbers.hear("1685", 5)
    assert numbers.check("1585", 4) == "1585"
    assert numbers.check("1585", 5) == "1685"
