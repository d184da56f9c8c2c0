"""Resegmentation: the cuts have the fewest word errors, whatever the words are."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simultan.evaluation.resegment import resegment

WORDS = st.sampled_from("abcd")
SENTENCES = st.lists(st.lists(WORDS, max_size=4).map(" ".join), min_size=1, max_size=4)


def errors(words: list[str], reference: list[str]) -> int:
    """The edit distance, as anyone would write it."""
    row = list(range(len(words) + 1))
    for i, wanted in enumerate(reference, 1):
        row, before = [i], row
        for j, word in enumerate(words, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (word != wanted)))
    return row[-1]


def total(words: list[str], sentences: list[str], cuts: list[int]) -> int:
    parts = [words[begin:end] for begin, end in pairwise([0, *cuts])]
    return sum(errors(part, text.split()) for part, text in zip(parts, sentences, strict=True))


@settings(deadline=None)
@given(st.lists(WORDS, max_size=7), SENTENCES)
def test_no_other_cuts_have_fewer_errors(words: list[str], sentences: list[str]) -> None:
    cuts = resegment(words, sentences)
    assert cuts == sorted(cuts)
    assert cuts[-1] == len(words)
    ways = combinations_with_replacement(range(len(words) + 1), len(sentences) - 1)
    best = min(total(words, sentences, [*way, len(words)]) for way in ways)
    assert total(words, sentences, cuts) == best


def test_case_and_punctuation_do_not_matter() -> None:
    words = ["good", "morning", "it", "rains", "we", "stay"]
    assert resegment(words, ["Good morning!", "It rains.", "We stay."]) == [2, 4, 6]


def test_words_that_are_missing_leave_their_sentence_empty() -> None:
    assert resegment(["one", "three"], ["one", "two two", "three"]) == [1, 1, 2]
    assert resegment([], ["one", "two"]) == [0, 0]
    with pytest.raises(ValueError, match="no reference"):
        resegment(["one"], [])


@pytest.mark.parametrize("band", [5, 20])
def test_a_long_text_needs_only_a_band(band: int) -> None:
    sentences = [f"s{i} is the number {i}" for i in range(200)]
    words = [word for i, text in enumerate(sentences) if i % 50 for word in text.split()]
    cuts = resegment(words, sentences, band)
    for i, (begin, end) in enumerate(pairwise([0, *cuts])):
        assert words[begin:end] == (sentences[i].split() if i % 50 else [])
