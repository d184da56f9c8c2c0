"""The text side of one row of a session: what was heard, and what is being written."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from simultan.data.writer import WordWriter
from simultan.streaming.copying import Copies, Heard, Sieve
from simultan.streaming.ends import EndFinder, Taken
from simultan.streaming.guards import Guard
from simultan.streaming.numbers import Numbers


class Choice(NamedTuple):
    """The next target token of a row, and the source tokens that it took to choose it."""

    row: int
    token: int
    token_heads: list[list[int]]  # [L, H] the source token each head stands on, from 0
    delay: int  # source tokens read


@dataclass
class Row:
    """Tokens are counted from 0 in each segment, and so are words, from 1, that the model reads.

    Words that it does not read have a place in the stream only: `place` counts all, from 1.
    """

    writer: WordWriter
    guard: Guard
    sieve: Sieve
    numbers: Numbers
    finder: EndFinder
    copies: Copies = field(default_factory=Copies)
    queue: deque[str] = field(default_factory=deque)  # words fed, not yet read
    read: int = 0  # words read, of the whole stream
    start: int = 0  # of them, words before the segment
    recent: list[str] = field(default_factory=list)  # words of the segment, if it may be cut
    told: int = 0  # of those read, those up to the last End
    words: int = 0  # words of the segment that the model has read
    written: int = 0  # words written in the segment
    committed: int = 0  # target tokens of the segment
    latest: int = 0  # the largest delay so far
    closed: bool = False  # no more words will be fed
    done: bool = False  # and all of them are translated
    ended: bool = False  # the end of the segment has been read
    waiting: bool = True  # nothing can be written before more is read
    reached: int = 0  # the source token the furthest head stood on at the last write
    floor: int = 0  # source tokens before this one are translated
    first: int = 0  # the source token that word_of[0] stands for
    word_of: list[int] = field(default_factory=list)  # the word of each source token
    first_place: int = 1  # the word that places[0] stands for
    places: list[int] = field(default_factory=list)  # the place of each word
    late: dict[int, int] = field(default_factory=dict)  # words that were awaited to read a place
    held: Choice | None = None  # an end of sentence that may have come too early

    @property
    def available(self) -> int:
        """Source tokens read, of this segment."""
        return self.first + len(self.word_of)

    @property
    def unread(self) -> bool:
        """Whether words were fed that are not yet read."""
        return bool(self.queue or self.finder.pending)

    def hear(self, taken: Taken) -> Heard:
        """Read a word."""
        heard = self.sieve.sift(taken.word)
        self.read += 1
        if taken.late:
            self.late[self.read] = taken.late
        if heard.text:
            self.words += 1
            self.places.append(self.read)
            self.numbers.hear(heard.text, self.read)
        if heard.copy:
            self.copies.hear(self.read, self.words - heard.leads, heard.copy)
        return heard

    @property
    def expects(self) -> bool:
        """Whether a word that the model reads is in the queue."""
        sieve = Sieve(self.sieve.alphabet, self.sieve.remark)
        words = [*(pending.word for pending in self.finder.pending), *self.queue]
        return any(sieve.sift(word).text for word in words)

    def word(self, token: int) -> int:
        """The word that a source token belongs to; the end belongs to the last word."""
        return min(self.word_of[token - self.first], self.words)

    def place(self, token: int) -> int:
        """The place in the stream of the word that a source token belongs to."""
        return self.places[self.word(token) - self.first_place]

    def delay(self, place: int) -> int:
        """The words that were heard when the word at this place was read."""
        return place + self.late.get(place, 0)

    def tokens_of(self, count: int) -> int:
        """Source tokens of the first words of the segment; its end is one word more."""
        return self.first + bisect_right(self.word_of, count)

    def has_words(self, count: int) -> bool:
        """Whether so many words of the segment were read, or there are no more."""
        return self.ended or count <= self.words

    def forget(self, token: int) -> None:
        """Source tokens before this one are no longer asked for."""
        del self.word_of[: token - self.first]
        self.first = token
        old = self.word_of[0] - self.first_place if self.word_of else len(self.places)
        del self.places[:old]
        self.first_place += old
