"""A recogniser that changes its mind: only what it agrees on is fed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simultan.streaming.stable import StableWords

PARTIALS = ["ich", "ich weis", "ich weiß nicht", "ich weiß nicht was", "ich weiß nicht was"]


def test_words_come_when_two_results_agree() -> None:
    stable = StableWords()
    assert [stable.partial(text) for text in PARTIALS] == [
        [], ["ich"], [], ["weiß", "nicht"], ["was"],
    ]  # fmt: skip
    assert stable.final("ich weiß nicht was das ist") == ["das", "ist"]
    assert stable.partial("und") == []  # a new utterance
    assert stable.final("und") == ["und"]


def test_how_many_must_agree() -> None:
    assert [StableWords(1).partial("a b")] == [["a", "b"]]
    stable = StableWords(3)
    assert [stable.partial(text) for text in ("a b", "a c", "a d", "a d", "a d")] == [
        [], [], ["a"], [], ["d"],
    ]  # fmt: skip
    with pytest.raises(ValueError, match="agreement = 0"):
        StableWords(0)


def test_what_was_fed_stays() -> None:
    stable = StableWords()
    stable.partial("zwei tage")
    assert stable.partial("zwei tage später") == ["zwei", "tage"]
    assert stable.partial("zweitage") == []
    assert stable.final("zweitage später kam er") == ["kam", "er"][-2:]


WORD = st.sampled_from(["a", "b"])
TEXTS = st.lists(st.lists(WORD, max_size=4).map(" ".join), min_size=1, max_size=8)


@given(TEXTS, st.integers(1, 3))
def test_no_word_comes_twice(texts: list[str], agreement: int) -> None:
    stable = StableWords(agreement)
    out = [word for text in texts for word in stable.partial(text)]
    out += stable.final(texts[-1])
    longest = max(len(text.split()) for text in texts)
    assert len(texts[-1].split()) <= len(out) <= longest
