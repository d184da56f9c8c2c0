"""Many streams -> rows of one batched session, which belongs to one thread.

In each turn, every stream that can write gets at most one target token, in one step of the model.
A stream has a row while it has something to translate; those that speak come before those that
have a whole text.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from simultan.server.metrics import Metrics
from simultan.server.protocol import Numbered, ProtocolError
from simultan.server.queue import MOST_OPEN, Queue
from simultan.server.rows import LIGHT, Rows
from simultan.server.settings import Settings
from simultan.streaming import session as events
from simultan.streaming.decoding import Decoding
from simultan.streaming.session import Session

MOST_TOKENS = 64  # of one word; the rest of it is not heard
MOST_COMMANDS = 256  # between two turns
LONG = 64  # words of a long sentence
MOST_OTHERS = 8  # whole texts in one step: live streams wait for its end
SHARE = 2.0  # times the seconds of all others together are for live streams
logger = logging.getLogger(__name__)


class Batcher:
    """One session of many rows; without `settings.batching` a step has one, to compare with."""

    def __init__(self, session: Session, settings: Settings, metrics: Metrics) -> None:
        self.session, self.settings, self.metrics = session, settings, metrics
        self.rows = Rows(session, settings)
        self.queues: dict[Queue, None] = {}  # in the order in which they came
        self.lent = 0.0  # seconds that live streams have to get before others have a turn
        self.warm = False  # the next translation is as quick as any
        self.busy = False  # something was done in the last turn
        self.turn_began: float | None = None
        self._commands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._out: list[tuple[Queue, Numbered | ProtocolError]] = []

    # --- called by the event loop ---

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits for the turn under way."""
        self._commands.put(None)
        self._thread.join(timeout=5)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stuck(self, seconds: float) -> bool:
        """A turn has taken longer than this."""
        began = self.turn_began
        return began is not None and time.monotonic() - began > seconds

    @property
    def idle(self) -> bool:
        """Nothing to do and nothing on its way; may be late by one turn."""
        return not self.busy and self._commands.empty()

    def post(self, command: Callable[[], None]) -> None:
        self._commands.put(command)

    def open(
        self,
        owner: Callable[[Numbered | ProtocolError], None],
        decoding: Decoding,
        *,
        is_text: bool = False,
        address: str = "",
    ) -> Queue:
        """A new stream. `owner` is called in the event loop; `is_text`: it gives way to others."""
        opened = Queue(self, owner, decoding, is_text, address)
        self.post(lambda: self.queues.update({opened: None}))
        return opened

    # --- the thread ---

    def remove(self, queue: Queue) -> None:
        self.queues.pop(queue, None)
        self.rows.release(queue)

    def _run(self) -> None:
        self._obey(self._warm_up)
        self.warm = True
        timeout: float | None = None
        while True:
            try:
                command = self._commands.get(timeout=timeout)
                self.busy = True
                for _ in range(MOST_COMMANDS):
                    if command is None:
                        return
                    self._obey(command)
                    command = self._commands.get_nowait()
                self._commands.put(command)  # the rest comes after a turn
            except Empty:
                pass
            self.turn_began = time.monotonic()
            timeout = self._turn()
            self.turn_began = None
            self.busy = timeout is not None

    def _warm_up(self) -> None:
        """Compute once with all rows, with long texts in some, and with one.

        Weights are laid out in memory when they are first needed, for one row and for many: so the
        first client need not wait for it, and this thread has the memory it will need.
        """
        every = list(range(len(self.session.rows)))
        for rows, words in ((every, 1), (every[:MOST_OTHERS], LONG), (every[:1], 1)):
            for row in rows:
                self.session.push("a " * words, row)
                self.session.close(row)
            self.session.advance(rows)
            for row in rows:
                self.session.reset(row)

    def _obey(self, command: Callable[[], None]) -> None:
        try:
            command()
        except Exception as error:  # of one stream; the thread is everybody's
            self._log(error)

    def _turn(self) -> float | None:
        """One turn; seconds until the next can do something, None: when a command comes."""
        for queue in [queue for queue in self.queues if queue.is_over()]:
            self._finish(queue)
        soon = min(self.settings.hold_seconds, self.settings.wait_seconds) / 4
        wait = None if self.rows.give(self.queues) else soon
        speaking: list[Queue] = []
        others: list[Queue] = []  # whole texts, and long words, which would hold up a whole step
        for queue in [queue for queue in self.queues if queue.row is not None]:
            if queue.blocks():
                continue
            try:
                seconds = self._feed(queue)
            except Exception as error:
                self._fail(queue, error)
                continue
            if queue.row is None or not self.session.wants_turn(queue.row):
                if seconds:
                    wait = seconds if wait is None else min(wait, seconds)
                self._rest(queue)
            elif queue.is_bulk or queue.suspect or self._is_heavy(queue):
                others.append(queue)
            else:
                speaking.append(queue)
        for group in self._groups(speaking, others):
            began = time.monotonic()
            self._advance(group)
            seconds = time.monotonic() - began
            self.lent += -seconds if group[0] in speaking else SHARE * seconds
            self._deliver()
        self.lent = max(self.lent, 0.0)
        self._deliver()
        return 0 if speaking or others else wait

    def _groups(self, speaking: list[Queue], others: list[Queue]) -> list[list[Queue]]:
        """Which streams share a step: it takes as long as its longest row.

        While somebody speaks, one of the others at a time has a step of its own, and all of them
        together half as much time as those who speak.
        """
        others.sort(key=lambda queue: (queue.is_bulk, queue.advanced))
        if not speaking:
            self.lent = 0.0
        most = MOST_OTHERS if not speaking else 0 if self.lent > 0 else 1
        others = others[:most]
        alone = [q for q in others if q.suspect or self._is_heavy(q)]
        groups = [speaking, [q for q in others if q not in alone]]
        if not self.settings.batching:
            groups = [[queue] for group in groups for queue in group]
        return [group for group in groups if group] + [[queue] for queue in alone[:1]]

    def _is_heavy(self, queue: Queue) -> bool:
        return queue.size > LIGHT and bool(self.session.rows[self._row(queue)].queue)

    @staticmethod
    def _row(queue: Queue) -> int:
        assert queue.row is not None
        return queue.row

    # --- one stream ---

    def _feed(self, queue: Queue) -> float:
        """Give the row its next words; seconds until it may have them."""
        row, session = self._row(queue), self.session
        if queue.again:
            if not session.wants_turn(row):  # what was read with the decoding before is written
                self.rows.say_again(queue)
            return 0.0
        if session.rows[row].queue or queue.closing or not queue.waiting:
            return 0.0
        if queue.decoding != queue.spoken and queue.waiting[0].text:
            if session.wants_turn(row):
                return 0.0
            self.rows.decode(queue, queue.decoding)
        now, rate = time.monotonic(), self.settings.words_per_second
        queue.allowance += (now - queue.stamp) * rate
        queue.allowance = min(queue.allowance, max(LIGHT, rate))  # unused for a second: lost
        queue.stamp = now
        if queue.allowance < 1:
            return (1 - queue.allowance) / rate
        words: list[str] = []
        size = 0
        while queue.waiting and queue.allowance >= 1 and size < LIGHT:
            if len(queue.open) == MOST_OPEN and session.cuts:  # few of them does the model read
                queue.closing = True
                break
            if not queue.waiting[0].text:
                queue.waiting.popleft()
                queue.closing = bool(queue.open)
                if queue.closing:
                    break
                continue
            word, tokens = self._shorten(queue.waiting[0].text)
            if words and size + tokens > LIGHT:
                break
            queue.take_word(word)
            words.append(word)
            size += tokens
            queue.allowance -= 1
        if words:
            session.push(" ".join(words), row)
            queue.size = size
        if queue.closing:
            session.close(row)
        return 0.0

    def _shorten(self, word: str) -> tuple[str, int]:
        """The word, or the beginning of one that is too long, and its tokens."""
        tokens = len(self.session.codec.encode_source_word(word))
        while tokens > MOST_TOKENS:
            word = word[: max(1, len(word) * MOST_TOKENS // (tokens + 1))]
            tokens = len(self.session.codec.encode_source_word(word))
        return word, tokens

    def _advance(self, group: Sequence[Queue]) -> None:
        began = time.monotonic()
        try:
            happened = self.session.advance([self._row(queue) for queue in group])
        except Exception as error:
            if len(group) == 1:
                self._fail(group[0], error)
            else:
                self._separate(group, error)
            return
        owners = {queue.row: queue for queue in group}
        for row, event in happened:
            self._say(owners[row], event)
        now = time.monotonic()
        for queue in group:
            queue.advanced = now
            if queue.behind:
                queue.settled, queue.behind = now, bool(queue.skip or queue.again)
            if queue.suspect and not queue.skip and not self.rows.is_busy(queue):
                queue.suspect = False  # what failed with others does not fail alone
            self._rest(queue)
        self.metrics.rows.observe(len(group))
        self.metrics.seconds.observe(now - began)

    def _separate(self, group: Sequence[Queue], error: Exception) -> None:
        """A step of several rows failed: each is said again, alone, and fails alone if it must."""
        self._log(error)
        for queue in group:
            if not queue.whole:
                self._fail(queue, error)
                continue
            queue.suspect = True
            try:
                self.rows.take(queue, self._row(queue))
            except Exception as worse:
                self._fail(queue, worse)

    def _fail(self, queue: Queue, error: Exception) -> None:
        """This stream is over, and only this one."""
        self._log(error)
        self._out.append((queue, ProtocolError("internal", "the model failed")))
        self.remove(queue)

    @staticmethod
    def _log(error: Exception) -> None:
        """What the error says may repeat a client."""
        logger.error("the model failed: %s", type(error).__name__)
        logger.debug("the model failed", exc_info=error)

    def _say(self, queue: Queue, event: events.Event) -> None:
        if isinstance(event, events.Write) and not queue.skip:
            seconds = queue.waited(event.delay + queue.base)
            if seconds is not None:
                self.metrics.wait.observe(seconds)
        message = queue.tell(event)
        if message is not None:
            self._out.append((queue, message))

    def _rest(self, queue: Queue) -> None:
        """After a turn: what was heard, whether more is wanted, whether all is done."""
        if queue.row is None:
            return
        state = self.session.rows[queue.row]
        queue.heard = max(queue.heard, queue.base + state.read)
        if state.done:  # a sentence that was ended by hand
            self.rows.renew(queue)
        elif self.session.wants_turn(queue.row):
            return
        if queue.waiting:
            return
        if queue.told < queue.heard and not queue.last:
            self._say(queue, events.Read())
        if not queue.open:
            self.rows.release(queue)
            if queue.last:
                self._finish(queue)

    def _finish(self, queue: Queue) -> None:
        self._out.append((queue, queue.finished()))
        self.remove(queue)

    def _deliver(self) -> None:
        if self._out and self._loop is not None:
            out, self._out = self._out, []
            try:
                self._loop.call_soon_threadsafe(_hand_over, out)
            except RuntimeError:  # the loop is closed: nobody listens any more
                self.queues.clear()


def _hand_over(out: list[tuple[Queue, Numbered | ProtocolError]]) -> None:
    for queue, message in out:
        if not queue.closed:
            try:
                queue.owner(message)
            except Exception as error:  # of one stream; the others' messages are not lost
                logger.error("a message was lost: %s", type(error).__name__)
