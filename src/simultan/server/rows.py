"""The rows of the batched session: they are given to streams, and taken away again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from simultan.server.queue import Queue
from simultan.server.settings import Settings
from simultan.streaming.decoding import Decoding
from simultan.streaming.session import Session

LIGHT = 8  # source tokens a row is given at once: rows of one step are padded to the longest


class Rows:
    """Used by the batcher's thread alone. A row serves whoever has words, sentence by sentence."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self.session, self.settings = session, settings
        self.free = list(range(len(session.rows)))[::-1]
        self.most_bulk = max(1, len(session.rows) * 3 // 4)  # the others are for live streams

    def give(self, queues: Iterable[Queue]) -> bool:
        """Rows for those who have words and none; False: somebody has to wait.

        Who speaks comes before who has a whole text, then an address with few rows before one with
        many, then who has waited longest.
        """
        now = time.monotonic()
        wanting: list[Queue] = []
        holding: list[Queue] = []
        for queue in queues:
            if queue.row is not None:
                holding.append(queue)
            elif queue.wants_row and not queue.blocks():
                wanting.append(queue)
                queue.since = now if queue.since is None else queue.since
            else:
                queue.since = None
        if not wanting:
            return True
        held = Counter(queue.address for queue in holding)
        bulk = sum(queue.is_bulk for queue in holding)
        idle = self._idle(holding, now) if len(self.free) < len(wanting) else []
        wanting.sort(key=lambda q: (q.is_bulk, held[q.address], q.since))
        enough = True
        for queue in wanting:
            if not self.free and not queue.is_bulk:
                other = idle.pop() if idle else self._longest(queue, holding, held, now)
                if other is not None:
                    self._park(other)
                    held[other.address] -= 1
                    bulk -= other.is_bulk
            if not self.free or (queue.is_bulk and bulk >= self.most_bulk):
                enough = False
                continue
            bulk += queue.is_bulk
            held[queue.address] += 1
            self.take(queue, self.free.pop())
        return enough

    def take(self, queue: Queue, row: int) -> None:
        """A new row; if a segment is open, it is said again, and what was sent is skipped."""
        queue.row, queue.base, queue.skip = row, queue.before, queue.emitted
        queue.advanced = queue.settled = time.monotonic()
        queue.since = None
        queue.replaying, queue.behind = False, bool(queue.open)
        self.session.reset(row)
        self.decode(queue, queue.decoding)
        queue.again = queue.open.copy()
        if queue.again:
            self.say_again(queue)

    def decode(self, queue: Queue, decoding: Decoding) -> None:
        """Decode so from the next word on.

        All that was read is written: so it counts after which word this was, and nothing else.
        """
        assert queue.row is not None
        self.session.set_decoding(decoding, queue.row)
        queue.spoken = decoding

    def say_again(self, queue: Queue) -> None:
        """Words of the open segment, as many as were read with the same decoding."""
        assert queue.row is not None
        again, decoding = queue.again, queue.again[0].decoding
        assert decoding is not None
        self.decode(queue, decoding)
        words: list[str] = []
        while again and again[0].decoding == decoding:
            words.append(again.popleft().text)
        self.session.push(" ".join(words), queue.row)
        queue.size = LIGHT + len(words)
        if queue.closing and not again:
            self.session.close(queue.row)

    def renew(self, queue: Queue) -> None:
        """The row begins anew, after a sentence that was ended by hand."""
        assert queue.row is not None
        queue.closing = False
        queue.open.clear()
        queue.before = queue.heard
        queue.emitted = 0
        self.take(queue, queue.row)

    def release(self, queue: Queue) -> None:
        if queue.row is not None:
            self.session.reset(queue.row)
            self.free.append(queue.row)
            queue.row = None

    def _idle(self, holding: list[Queue], now: float) -> list[Queue]:
        """Who can be parked at once: with a whole text, or, at the end, silent for long."""
        silent: list[Queue] = []
        bulk: list[Queue] = []
        for queue in holding:
            if not queue.whole:
                continue
            rests = not queue.waiting and not self.is_busy(queue)
            if (rests or queue.full) and now - queue.advanced > self.settings.hold_seconds:
                silent.append(queue)
            elif queue.is_bulk:
                bulk.append(queue)
        for group in (silent, bulk):
            group.sort(key=lambda queue: -queue.advanced)
        return bulk + silent

    def _longest(
        self, waiter: Queue, holding: list[Queue], held: Counter[str], now: float
    ) -> Queue | None:
        """Who has had a row longest, where most rows are, if the waiter has waited long enough.

        An address that has as many itself passes its own on. A row is had for some time before it
        is taken away, counted from when all is said again: or nothing but that would be done.
        """
        assert waiter.since is not None
        if now - waiter.since < self.settings.wait_seconds:
            return None
        theirs = [q for q in holding if q.row is not None and q.whole and not q.is_bulk]
        most = max((held[queue.address] for queue in theirs), default=0)
        if most > held[waiter.address]:
            theirs = [queue for queue in theirs if held[queue.address] == most]
        else:
            theirs = [queue for queue in theirs if queue.address == waiter.address]
        theirs = [queue for queue in theirs if not queue.behind]
        longest = min(theirs, key=lambda queue: queue.settled, default=None)
        if longest is None or now - longest.settled < self.settings.turn_seconds:
            return None
        return longest

    def _park(self, queue: Queue) -> None:
        """Its words are kept: on its next row the open sentence is translated again."""
        queue.replaying = self.is_busy(queue)
        self.release(queue)

    def is_busy(self, queue: Queue) -> bool:
        """Its row has something to do with the words that it was given before."""
        assert queue.row is not None
        return bool(queue.again) or self.session.wants_turn(queue.row)
