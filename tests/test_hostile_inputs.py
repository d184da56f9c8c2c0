"""Two hundred inputs that are no German prose: nothing is made up, and no number is lost."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hostile import HOSTILE

import simultan
from simultan.data.text import normalise
from simultan.streaming.numbers import digit_groups
from simultan.streaming.session import Write

INVENTED = re.compile(r"Europe|Commission|President|Parliament|Council|Member State", re.IGNORECASE)


@pytest.fixture(scope="module")
def outputs() -> dict[str, list[str]]:
    assert len(set(HOSTILE)) == 200
    results = simultan.load("de-en").translate(HOSTILE)
    return {text: result.words for text, result in zip(HOSTILE, results, strict=True)}


def test_no_output_is_much_longer_than_its_source(outputs: dict[str, list[str]]) -> None:
    """Twice as many words; of one word or two, three more."""
    for text, words in outputs.items():
        count = len(normalise(text).split())
        assert len(words) <= max(2 * count, count + 3), (text, words)


def test_every_digit_group_is_kept(outputs: dict[str, list[str]]) -> None:
    for text, words in outputs.items():
        lost = Counter(digit_groups(normalise(text))) - Counter(digit_groups(" ".join(words)))
        assert not lost, (text, words)


def test_nothing_is_said_about_europe(outputs: dict[str, list[str]]) -> None:
    for text, words in outputs.items():
        assert not INVENTED.search(" ".join(words)), (text, words)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Super 👍", "awesome. 👍"),
        ("Das kostet 5\u200b €.\u00ad\u202e", "This costs 5 euros."),
        ("Meine Katze 🐱 schläft.", "My cat 🐱 is sleeping."),
        ("Das Haus kostet 1.250.000 Euro", "The house costs 1,250,000 euros."),
        ("max.mustermann@example.de", "max.mustermann@example.de"),
    ],
)
def test_what_is_copied_has_its_place(
    outputs: dict[str, list[str]], text: str, expected: str
) -> None:
    assert " ".join(outputs[text]) == expected


def test_a_stream_of_all_of_them_ends(outputs: dict[str, list[str]]) -> None:
    session = simultan.load("de-en").session()
    events = [event for text in HOSTILE for event in session.feed(text)] + session.finish()
    said = " ".join(event.text for event in events if isinstance(event, Write))
    assert session.rows[0].done
    assert not INVENTED.search(said)
    assert len(said.split()) <= 2 * sum(len(normalise(text).split()) for text in HOSTILE)
