"""What an episode is worth, worked by hand."""

from __future__ import annotations

import pytest

from simultan.streaming.agents import READ, WRITE
from simultan.streaming.agents.predict import GUESS
from simultan.train.agents.baseline import expect
from simultan.train.agents.recipe import RewardPart
from simultan.train.agents.reward import (
    Episode,
    SentenceBLEU,
    average_proportion,
    measure,
    prospects,
    rewards,
)

A, B, C, D = 10, 11, 12, 13


def grow(reference: list[int], tokens: list[int]) -> list[float]:
    bleu, found = SentenceBLEU(reference), []
    for token in tokens:
        bleu.add(token)
        found.append(bleu.score(brevity=False))
    return found


def test_bleu_by_hand() -> None:
    # a: p1 = 1, longer n-grams (0 + 1) / (0 + 1). a b: all right. a b x: 2/3, 2/3, 1/2, 1
    found = grow([A, B, C, D], [A, B, 99])
    assert found == pytest.approx([1.0, 1.0, (2 / 3 * 2 / 3 * 1 / 2) ** 0.25])
    assert grow([A, B], [99, 98]) == [0.0, 0.0]
    # a token counts as often as the reference has it: a a against a b: 1/2, 1/2
    assert grow([A, B], [A, A])[1] == pytest.approx((1 / 2 * 1 / 2) ** 0.25)


def test_a_short_translation_pays_at_the_end() -> None:
    bleu = SentenceBLEU([A, B, C, D])
    for token in (A, B):
        bleu.add(token)
    assert bleu.score(brevity=True) == pytest.approx(2.718281828 ** (1 - 4 / 2))


def episode() -> Episode:
    """Four words: write after 1, read twice, write, a guess, write, read the rest, the end."""
    return Episode(
        source_words=4,
        reference=[A, B, C],
        actions=[WRITE, READ, READ, WRITE, GUESS, WRITE, READ, WRITE],
        free=[True] * 7 + [False],
        written=[A, None, None, B, None, C, None, None],
        read=[1, 1, 2, 3, 3, 3, 3, 5],
        guessed=[False, False, False, False, False, True, True, False],
        right=[True],
    )


def test_delay_by_hand() -> None:
    # delays 1, 3, 3 of 4 words
    assert episode().delays == [1, 3, 3]
    assert average_proportion(episode()) == pytest.approx(7 / 12)
    # a target of 1/3 is exceeded by 1/4; waits: 1 and 2 after a, 1 after c
    part = RewardPart(
        average_proportion=1 / 3,
        average_proportion_weight=2.0,
        consecutive_wait=1,
        consecutive_wait_weight=0.1,
        guess=0.0,
    )
    # everything is right: BLEU0 is 1 from the first token on, and 1 at the end; the tokens pay
    # 2 * 1/4 in shares of 1, 3 and 3 sevenths
    a, b = 0.5 / 7, 1.5 / 7
    assert rewards(episode(), part) == pytest.approx([1 - a, -0.1, -0.2, -b, 0, -b, -0.1, 1])
    free = RewardPart(average_proportion=0.6, consecutive_wait=3, guess=0.0)
    assert rewards(episode(), free) == pytest.approx([1, 0, 0, 0, 0, 0, 0, 1])


def test_lag_by_hand() -> None:
    # three tokens should have read 0, 4/3 and 8/3 words before them; they have read 1, 3 and 3
    part = RewardPart(average_proportion=1.0, lag=0.3, guess=0.0)
    a, b, c = 0.1, 0.1 * (3 - 4 / 3), 0.1 * (3 - 8 / 3)
    assert rewards(episode(), part) == pytest.approx([1 - a, 0, 0, -b, 0, -c, 0, 1])
    early = episode()
    early.read[5] = 2  # ahead of 8/3: that is not paid for
    plain = rewards(early, RewardPart(average_proportion=1.0, guess=0.0))
    assert rewards(early, part)[5] == pytest.approx(plain[5])


def test_prospects_are_what_is_earned_without_what_was_known() -> None:
    """They differ from all that is earned by something that depends on the past alone."""
    part = RewardPart(average_proportion=0.4, lag=0.3, guess=0.0)
    one, other = episode(), episode()
    other.written[5], other.read[5] = 99, 4
    totals = [sum(rewards(e, part)) for e in (one, other)]
    found = [prospects(e, part) for e in (one, other)]
    assert found[0][0] == pytest.approx(totals[0])  # nothing is past
    for i in range(6):  # up to the token that differs
        assert found[0][i] - found[1][i] == pytest.approx(totals[0] - totals[1])
    # a token of three: 1/3, no pair of two, no three of one: (1/3 1/3 1/2 1)^(1/4); it paid 0.1
    assert found[0][1] == pytest.approx(totals[0] + 0.1 - 2 * (1 / 3 * 1 / 3 * 1 / 2) ** 0.25)


def test_an_action_is_compared_with_others_at_the_same_token() -> None:
    one, other = episode(), episode()
    other.written = [None, A, None, None, None, None, None, None]
    found = expect([one, other], [[8, 7, 6, 5, 4, 3, 2, 1], [10, 20, 30, 40, 50, 60, 70, 80]], 2)
    assert found[0] == [10, 30, 30, 30, 0, 0, 0, 0]  # the other one has not written more than one
    assert found[1] == [8, 8, 7, 7, 7, 7, 7, 7]


def test_the_first_word_counts_as_waiting() -> None:
    waits = Episode(
        source_words=3, reference=[A], actions=[READ, READ, WRITE, WRITE], free=[True] * 4,
        written=[None, None, A, None], read=[1, 2, 3, 3], guessed=[False] * 4,
    )  # fmt: skip
    part = RewardPart(average_proportion=1.0, consecutive_wait=2, consecutive_wait_weight=1.0)
    assert rewards(waits, part) == pytest.approx([-1, -2, 1, 1])


def test_what_a_guess_gains_counts_more() -> None:
    told = episode()
    told.written = [99, None, None, 98, None, B, None, None]  # gains after the guess
    plain = rewards(told, RewardPart(average_proportion=1.0, guess=0.0))
    more = rewards(told, RewardPart(average_proportion=1.0, guess=0.5))
    assert plain[5] > 0
    assert more[5] == pytest.approx(1.5 * plain[5])
    assert more[:5] + more[6:] == plain[:5] + plain[6:]


def test_means() -> None:
    one = episode()
    found = measure([one, one], [[1.0, 2.0], [3.0, 4.0]], guesses=True)
    assert found["reward"] == 5.0
    assert found["BLEU"] == pytest.approx(100)
    assert found["guesses"] == found["guesses_right"] == 1.0
    # AL: delays 1, 3, 3, none reaches 4: (1 + (3 - 4/3) + (3 - 8/3)) / 3
    assert found["AL"] == pytest.approx((1 + 5 / 3 + 1 / 3) / 3)
