"""Words of a recogniser that will not change any more: local agreement of its partial results.

A recogniser revises what it has heard. A stream cannot take back what it was fed, so a word is
fed only when the last `agreement` partial results begin alike up to it (Liu et al. 2020).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import takewhile
from typing import TypeVar

Item = TypeVar("Item")


class StableWords:
    """One utterance after another: partial results in, stable words out, each once."""

    def __init__(self, agreement: int = 2) -> None:
        if agreement < 1:
            raise ValueError(f"agreement = {agreement}: at least one partial result must agree")
        self.recent: deque[list[str]] = deque(maxlen=agreement)
        self.fed = 0  # words of this utterance that are out

    def partial(self, text: str) -> list[str]:
        """The words that have become stable with this partial result of the utterance."""
        self.recent.append(text.split())
        if len(self.recent) < (self.recent.maxlen or 1):
            return []
        return self._take(common_prefix(list(self.recent)))

    def final(self, text: str) -> list[str]:
        """The rest of the utterance; the next partial result begins a new one.

        What was fed stays as it is, even where the recogniser has changed its mind since.
        """
        words = self._take(text.split())
        self.recent.clear()
        self.fed = 0
        return words

    def _take(self, words: list[str]) -> list[str]:
        new = words[self.fed :]
        self.fed += len(new)
        return new


def common_prefix(texts: Sequence[Sequence[Item]]) -> list[Item]:
    """What all of them begin with."""
    alike = takewhile(lambda words: len(set(words)) == 1, zip(*texts, strict=False))
    return [words[0] for words in alike]
