"""The text side of one row of a session: what was heard, and what is being written."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from simultan.data.writer import WordWriter
from simultan.streaming.guards import Guard

__all__ = ["Choice", "Row"]


class Choice(NamedTuple):
    """The next target token of a row, and the source tokens that it took to choose it."""

    row: int
    token: int
    token_heads: list[list[int]]  # [L, H] the source token each head stands on, from 0
    delay: int  # source tokens read


@dataclass
class Row:
    """Source tokens are counted from 0 in each segment, words from 1 over the whole stream."""

    writer: WordWriter
    guard: Guard
    queue: deque[str] = field(default_factory=deque)  # words fed, not yet read
    read: int = 0  # words read, of the whole stream
    before: int = 0  # of them, words of earlier segments
    closed: bool = False  # no more words will be fed
    done: bool = False  # and all of them are translated
    ended: bool = False  # the end of the segment has been read
    waiting: bool = True  # nothing can be written before more is read
    reached: int = 0  # the source token the furthest head stood on at the last write
    floor: int = 0  # source tokens before this one are translated
    first: int = 0  # the source token that word_of[0] stands for
    word_of: list[int] = field(default_factory=list)  # the word of each source token
    held: Choice | None = None  # an end of sentence that may have come too early

    @property
    def available(self) -> int:
        """Source tokens read, of this segment."""
        return self.first + len(self.word_of)

    def word(self, token: int) -> int:
        """The word that a source token belongs to; the end belongs to the last word."""
        return min(self.word_of[token - self.first], self.read)

    def next_token(self, word: int) -> int:
        """The source token after a word."""
        return self.first + bisect_right(self.word_of, word)

    def has_words(self, count: int) -> bool:
        """Whether so many words of the segment were read, or there are no more."""
        return self.ended or self.before + count <= self.read

    def tokens_of(self, count: int) -> int:
        """Source tokens of the first words of the segment; its end is one word more."""
        return self.next_token(self.before + count)
