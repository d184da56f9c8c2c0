"""What an episode is worth, action by action (Gu et al. 2017).

    r_t = BLEU0(Y_t) - BLEU0(Y_{t-1}),  and BLEU(Y) at the last action
        - w_c (sgn(c_t - c*) + 1)       c_t: words read in a row, so far
        - w_d max(0, d - d*)            d: average proportion, of the sentence
        - w_l l                         l: words that its tokens are behind on average; ours
BLEU0 is smoothed sentence BLEU without its brevity penalty. With a guess in view the gain counts
1 + w_g times (Alinejad et al. 2018). What a sentence pays for d and l is shared out among its
tokens by their delays (in the paper the last action pays).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from simultan import latency
from simultan.streaming.agents.predict import GUESS
from simultan.train.agents.recipe import RewardPart

ORDER = 4


class SentenceBLEU:
    """Smoothed BLEU of a translation that grows: one is added to the counts of longer n-grams."""

    def __init__(self, reference: Sequence[int]) -> None:
        self.length = len(reference)
        self.left = Counter(
            tuple(reference[i : i + n])
            for n in range(1, ORDER + 1)
            for i in range(len(reference) - n + 1)
        )
        self.tokens: list[int] = []
        self.matches = [0] * ORDER

    def add(self, token: int) -> None:
        self.tokens.append(token)
        for n in range(1, min(ORDER, len(self.tokens)) + 1):
            gram = tuple(self.tokens[-n:])
            if self.left[gram] > 0:
                self.left[gram] -= 1
                self.matches[n - 1] += 1

    def score(self, brevity: bool) -> float:
        written = len(self.tokens)
        penalty = min(0.0, 1 - self.length / written) if brevity and written else 0.0
        return self._mean(written, penalty)

    def progress(self) -> float:
        """The same with the reference's counts below: it grows from about 0, n-gram by n-gram."""
        return self._mean(self.length, 0.0)

    def _mean(self, length: int, penalty: float) -> float:
        """Of the matches, among the n-grams of a text of this length."""
        if not self.matches[0]:
            return 0.0
        logs = math.log(self.matches[0] / length)
        for n in range(2, ORDER + 1):
            count = max(0, length - n + 1)
            logs += math.log((self.matches[n - 1] + 1) / (count + 1))
        return math.exp(logs / ORDER + penalty)


@dataclass
class Episode:
    """What happened in one sentence: for each action, the token that was written, if one was."""

    source_words: int
    reference: list[int]  # without its end
    actions: list[int] = field(default_factory=list)
    free: list[bool] = field(default_factory=list)  # whether there was a choice
    written: list[int | None] = field(default_factory=list)
    read: list[int] = field(default_factory=list)  # words, at each action
    guessed: list[bool] = field(default_factory=list)  # whether a guess was in view
    right: list[bool] = field(default_factory=list)  # whether each guess was right
    observed: list[Tensor] = field(default_factory=list)  # [O] what the policy saw, at each action

    @property
    def tokens(self) -> list[int]:
        return [token for token in self.written if token is not None]

    @property
    def delays(self) -> list[int]:
        """Source words read, for each token."""
        pairs = zip(self.written, self.read, strict=True)
        return [min(read, self.source_words) for token, read in pairs if token is not None]


def average_proportion(episode: Episode) -> float:
    """The share of the source that was read, averaged over target tokens; 0 without any."""
    delays = episode.delays
    return sum(delays) / (len(delays) * episode.source_words) if delays else 0.0


def rewards(episode: Episode, part: RewardPart) -> list[float]:
    """One for each action."""
    parts = _gains(episode, part), _share_costs(episode, part), _word_costs(episode, part)
    return [gain - share - word for gain, share, word in zip(*parts, strict=True)]


def prospects(episode: Episode, part: RewardPart) -> list[float]:
    """Before each action: what is still to be earned, as far as one can tell.

    BLEU and average proportion are those of the whole sentence: what a token's share of them is
    depends on all actions after it. Of what was known before the action, which it cannot change,
    as much as possible is left out, so that the same is learnt from fewer episodes: what the
    tokens so far let one expect of BLEU, and what was paid word by word.
    """
    bleu, found = SentenceBLEU(episode.reference), []
    costs = _word_costs(episode, part)
    total, left = sum(_gains(episode, part)) - sum(_share_costs(episode, part)), sum(costs)
    for token, cost in zip(episode.written, costs, strict=True):
        found.append(total - 2 * bleu.progress() - left)
        left -= cost
        if token is not None:
            bleu.add(token)
    return found


def _gains(episode: Episode, part: RewardPart) -> list[float]:
    """BLEU, action by action."""
    bleu, before = SentenceBLEU(episode.reference), 0.0
    found: list[float] = []
    for token, guessed in zip(episode.written, episode.guessed, strict=True):
        gain = 0.0
        if token is not None:
            bleu.add(token)
            after = bleu.score(brevity=False)
            gain = (after - before) * (1 + part.guess * guessed)
            before = after
        found.append(gain)
    if found:
        found[-1] += bleu.score(brevity=True)
    return found


def _share_costs(episode: Episode, part: RewardPart) -> list[float]:
    """An average proportion that is too large, action by action."""
    delays = iter(episode.delays)
    excess = max(0.0, average_proportion(episode) - part.average_proportion)
    price = part.average_proportion_weight * excess / max(1, sum(episode.delays))
    return [0.0 if token is None else price * next(delays) for token in episode.written]


def _word_costs(episode: Episode, part: RewardPart) -> list[float]:
    """Lags and long waits, action by action; each depends on what was done before it alone."""
    length = max(1, len(episode.reference))
    step = episode.source_words / length
    own = iter([
        part.lag * max(0.0, delay - i * step) / length  # who runs ahead is not paid for it
        for i, delay in enumerate(episode.delays)
    ])  # fmt: skip
    found: list[float] = []
    wait, last = 1, len(episode.actions) - 1  # the first word is read before the first action
    for number, (action, token) in enumerate(zip(episode.actions, episode.written, strict=True)):
        cost = 0.0
        if token is not None:
            wait, cost = 0, next(own)
        elif action != GUESS and number < last:  # the last one is the end of the translation
            wait += 1
            sign = (wait > part.consecutive_wait) - (wait < part.consecutive_wait)
            cost = part.consecutive_wait_weight * (sign + 1)
        found.append(cost)
    return found


def measure(
    episodes: Sequence[Episode], earned: Sequence[Sequence[float]], guesses: bool
) -> dict[str, float]:
    """Means over episodes; BLEU is that of the reward, AL in source words and target tokens."""
    found = {
        "reward": statistics.fmean(map(sum, earned)),
        "BLEU": 100 * statistics.fmean(map(_bleu, episodes)),
        "AP": statistics.fmean(map(average_proportion, episodes)),
        "AL": statistics.fmean(map(_average_lagging, episodes)),
    }
    if guesses:
        judged = [right for episode in episodes for right in episode.right]
        found["guesses"] = len(judged) / len(episodes)
        found["guesses_right"] = sum(judged) / max(1, len(judged))
    return found


def _bleu(episode: Episode) -> float:
    bleu = SentenceBLEU(episode.reference)
    for token in episode.tokens:
        bleu.add(token)
    return bleu.score(brevity=True)


def _average_lagging(episode: Episode) -> float:
    delays = episode.delays
    if not delays:
        return 0.0
    lengths = episode.source_words, len(delays), len(episode.reference)
    found = latency.average_lagging(torch.tensor(delays), *map(torch.tensor, lengths))
    return float(found)
