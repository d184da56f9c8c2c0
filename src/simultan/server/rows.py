"""The rows of the batched session: they are given to streams, and taken away again."""

from __future__ import annotations

import time
from collections.abc import Iterable

from simultan.server.queue import Queue
from simultan.streaming.session import Session

LIGHT = 8  # source tokens a row is given at once: rows of one step are padded to the longest


class Rows:
    """Used by the batcher's thread alone. A row serves whoever has words, sentence by sentence."""

    def __init__(self, session: Session, hold_seconds: float) -> None:
        self.session, self.hold_seconds = session, hold_seconds
        self.free = list(range(len(session.rows)))[::-1]
        self.most_bulk = max(1, len(session.rows) * 3 // 4)  # the others are for live streams

    def give(self, queues: Iterable[Queue]) -> bool:
        """Rows for those who have words and none; False: somebody has to wait."""
        queues = list(queues)
        wanting = [q for q in queues if q.row is None and q.wants_row and not q.blocks()]
        bulk = sum(q.is_bulk for q in queues if q.row is not None)
        enough = True
        for queue in sorted(wanting, key=lambda queue: queue.is_bulk):
            if not self.free and not queue.is_bulk:
                self._park(queues)
            if not self.free or (queue.is_bulk and bulk >= self.most_bulk):
                enough = False
                continue
            bulk += queue.is_bulk
            self.take(queue, self.free.pop())
        return enough

    def take(self, queue: Queue, row: int) -> None:
        """A new row; if a segment is open, it is said again, and what was sent is skipped."""
        queue.row, queue.base, queue.skip = row, queue.before, queue.emitted
        queue.advanced = time.monotonic()
        queue.replaying = False
        self.session.reset(row)
        self.session.set_decoding(queue.decoding, row)
        if queue.open:
            self.session.push(" ".join(word.text for word in queue.open), row)
            queue.size = LIGHT + len(queue.open)
            if queue.closing:
                self.session.close(row)

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

    def _park(self, queues: Iterable[Queue]) -> None:
        """Take a row away: of one that has been silent for long, or of one that has a whole text.

        Its words are kept: on its next row the open sentence is translated again.
        """
        now = time.monotonic()
        silent: list[Queue] = []
        bulk: list[Queue] = []
        for queue in queues:
            if queue.row is None or not queue.whole:
                continue
            rests = not queue.waiting and not self.session.wants_turn(queue.row)
            if (rests or queue.full) and now - queue.advanced > self.hold_seconds:
                silent.append(queue)
            elif queue.is_bulk:
                bulk.append(queue)
        for queue in sorted(silent or bulk, key=lambda queue: queue.advanced)[:1]:
            assert queue.row is not None
            queue.replaying = self.session.wants_turn(queue.row)
            self.release(queue)
