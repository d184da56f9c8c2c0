"""One stream on its way through the model: words that wait, and what its row is busy with."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simultan.server.protocol import End, Finished, Numbered, ProtocolError, Read, Stats, Write
from simultan.streaming import session as events
from simultan.streaming.decoding import Decoding

if TYPE_CHECKING:
    from simultan.server.batcher import Batcher

MOST_EVENTS = 4  # of one row in one turn
BULK = 40  # words that wait: whoever has more is not speaking, and gives way to those who are
PACE = 5.0  # and more than so many a second: who is made to wait is not to be bulk for it
MOST_OPEN = 512  # words of one segment that are kept, to be said again


@dataclass(slots=True)  # of a whole text there are thousands
class Word:
    text: str  # "": the sentence ends here
    arrived: float
    decoding: Decoding | None = None  # that it was read with


class Queue:
    """The first methods are called by the event loop; everything else belongs to the thread.

    `heard` and `produced` are written by the thread alone and may be read by anyone; `acked` is
    written by the loop. A queue has a row while its row has something to do. The words of its
    open segment are kept: on another row they give the same translation again, of which the part
    that was already sent (`emitted`) is skipped.
    """

    def __init__(
        self,
        batcher: Batcher,
        owner: Callable[[Numbered | ProtocolError], None],  # an error is the end
        decoding: Decoding,
        is_text: bool,
        address: str,
    ) -> None:
        self.batcher, self.owner, self.is_text = batcher, owner, is_text
        self.address = address
        self.decoding = decoding  # of the words that are read from now on
        self.started = self.stamp = self.advanced = time.monotonic()
        self.closed = False
        self.acked = self.heard = self.told = self.produced = 0
        self.blocked = False  # the thread waits for an acknowledgement
        self.full_since: float | None = None
        self.waiting: deque[Word] = deque()  # not yet given to a row
        self.last = False  # no more will come
        self.allowance = 8.0  # words it may be given now
        self.size = 0  # source tokens its row was given last
        self.segment = self.written = 0
        # the row, while there is one
        self.row: int | None = None
        self.since: float | None = None  # it waits for one
        self.base = 0  # source words before the first one of the row
        self.spoken = decoding  # what the row decodes with
        self.again: deque[Word] = deque()  # open words that the row has still to be told again
        self.closing = False  # the open segment ends with the words that its row has
        self.replaying = False  # its row was lost: the open segment has to be said again
        self.settled = 0.0  # when it got it, or had last said again what was sent
        self.behind = False  # what was sent is not yet all said again
        self.suspect = False  # a step with this row has failed: it is computed alone
        # the open segment
        self.open: deque[Word] = deque()
        self.before = 0  # source words before it
        self.emitted = self.skip = 0  # writes of it that were sent; that are still to be skipped
        self.whole = True  # all its words are in `open`

    # --- called by the event loop ---

    def push(self, words: list[str]) -> None:
        """More source words."""
        now = time.monotonic()
        added = [Word(word, now) for word in words]
        self.batcher.post(lambda: self.waiting.extend(added))

    def end_sentence(self) -> None:
        """The segment ends with the words so far, whatever the last one looks like."""
        now = time.monotonic()
        self.batcher.post(lambda: self.waiting.append(Word("", now)))

    def set_decoding(self, decoding: Decoding) -> None:
        """From the next word that is read on."""

        def change() -> None:
            self.decoding = decoding

        self.batcher.post(change)

    def finish(self) -> None:
        """The source is over; a Finished follows."""

        def finish() -> None:
            self.waiting.append(Word("", time.monotonic()))
            self.last = True

        self.batcher.post(finish)

    def acknowledge(self, number: int) -> None:
        """Messages up to this one have arrived: there is room for as many more."""
        self.acked = max(self.acked, number)
        if self.blocked:  # read after `acked` was written, as the thread does it the other way
            self.batcher.post(lambda: None)

    def close(self) -> None:
        """The stream is over, done or not."""
        if not self.closed:
            self.closed = True
            self.batcher.post(lambda: self.batcher.remove(self))

    @property
    def full(self) -> bool:
        """Too much is on its way: the row waits."""
        return self.produced - self.acked > self.batcher.settings.window - MOST_EVENTS

    def seconds_full(self, now: float) -> float:
        """For how long nobody has seen it with room for more; to be asked now and then."""
        self.full_since = (self.full_since or now) if self.full else None
        return now - (self.full_since or now)

    @property
    def at_rest(self) -> bool:
        """Nothing is open: what was said is translated."""
        return not self.waiting and not self.open

    # --- the thread ---

    @property
    def is_bulk(self) -> bool:
        waiting = self.waiting
        if self.is_text or len(waiting) <= BULK:
            return self.is_text
        return len(waiting) > BULK + PACE * (waiting[-1].arrived - waiting[0].arrived)

    @property
    def wants_row(self) -> bool:
        return bool(self.waiting) or self.replaying

    def is_over(self) -> bool:
        """Whether all is said, without a row. Ends of sentences that have no words are dropped."""
        while not self.open and self.waiting and not self.waiting[0].text:
            self.waiting.popleft()
        return self.row is None and self.last and self.at_rest

    def blocks(self) -> bool:
        """Whether it has to wait for an acknowledgement; acknowledge() then wakes the thread."""
        self.blocked = self.full
        if self.blocked and not self.full:  # it came just now
            self.blocked = False
        return self.blocked

    def take_word(self, text: str) -> None:
        """The first word that waits goes to the row, as this text."""
        word = self.waiting.popleft()
        word.text, word.decoding = text, self.spoken
        self.open.append(word)
        if len(self.open) > MOST_OPEN:  # a model without sentences; it cannot be said again
            self.open.popleft()
            self.before += 1
            self.whole = False

    def tell(self, event: events.Event) -> Numbered | None:
        """The message of an event of the row; None: it was sent before."""
        if self.skip and isinstance(event, events.Write):
            self.skip -= 1
            return None
        self.produced += 1
        match event:
            case events.Write(text, delay, heads):
                self.emitted += 1
                self.written += len(text.split())
                if self.base:
                    heads = [[at + self.base for at in layer] for layer in heads]
                at = round((time.monotonic() - self.started) * 1e3)
                return Write(text, delay + self.base, heads, self.segment, at, seq=self.produced)
            case events.End(words):
                self._end_segment(words + self.base)
                return End(self.before, self.segment - 1, seq=self.produced)
            case _:
                self.told = self.heard
                return Read(self.heard, seq=self.produced)

    def _end_segment(self, words: int) -> None:
        """The segment ended with this source word."""
        while self.open and self.before < words:
            self.open.popleft()
            self.before += 1
        self.before = words
        for word in self.open:  # what is left is read anew, with what the row decodes with now
            word.decoding = self.spoken
        self.segment += 1
        self.emitted = self.skip = 0
        self.whole, self.suspect = True, False

    def waited(self, word: int) -> float | None:
        """Seconds since this source word came in, if it is of the open segment."""
        index = word - self.before - 1
        if not 0 <= index < len(self.open):
            return None
        return time.monotonic() - self.open[index].arrived

    def finished(self) -> Finished:
        self.produced += 1
        seconds = round(time.monotonic() - self.started, 3)
        return Finished(Stats(self.heard, self.written, self.segment, seconds), seq=self.produced)
