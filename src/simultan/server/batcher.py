"""Live streams -> rows of one batched session: one thread owns it, lanes lead to it.

Each turn takes every stream that can go on by at most one target token, in one step of the model.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simultan.server.protocol import End, Finished, Numbered, Read, Stats, Write
from simultan.streaming import session as events
from simultan.streaming.decoding import Decoding
from simultan.streaming.session import Session

__all__ = ["Batcher", "Fault", "Lane", "Turn"]

LIGHT = 8  # source tokens a row is given at once: rows of one step are padded to the longest
LONGEST_WORD = 200  # characters; the rest is not heard
MOST_EVENTS = 4  # of one row in one turn
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fault:
    """The model failed on a row; its stream is over."""


@dataclass(frozen=True)
class Turn:
    """One step of the model, for the metrics."""

    rows: int
    seconds: float


class Lane:
    """One stream's way to its row. Methods are called by the event loop, the rest is the thread's.

    `heard` and `produced` are written by the thread alone and may be read by anyone; `acked` the
    other way round.
    """

    def __init__(
        self, batcher: Batcher, row: int, owner: Callable[[Numbered | Fault], None]
    ) -> None:
        self.batcher, self.row, self.owner = batcher, row, owner
        self.started = time.monotonic()
        self.closed = False
        self.acked = 0  # of what was produced
        self.heard = self.told = 0  # source words; and of them, those a `read` has told of
        self.produced = 0  # messages
        self.waiting: deque[str] = deque()  # words the row has not been given
        self.last = False  # no more will come
        self.allowance = LIGHT * 1.0  # words it may be given now
        self.stamp = self.started
        self.size = 0  # source tokens it was given last
        self.segment = self.written = 0

    def push(self, words: list[str]) -> None:
        """More source words."""
        self.batcher.post(lambda: self.waiting.extend(words))

    def set_threshold(self, value: float) -> None:
        self.batcher.post(lambda: self.batcher.set_threshold(value, self.row))

    def finish(self) -> None:
        """The source is over; a Finished follows."""

        def finish() -> None:
            self.last = True

        self.batcher.post(finish)

    def acknowledge(self, number: int) -> None:
        """Messages up to this one have arrived: there is room for as many more."""
        full = self.full
        self.acked = max(self.acked, number)
        if full:
            self.batcher.post(_nothing)

    @property
    def full(self) -> bool:
        """Too much is on its way: the row waits."""
        return self.produced - self.acked > self.batcher.window - MOST_EVENTS

    def close(self) -> None:
        """The stream is over, done or not: the row is free."""
        if not self.closed:
            self.closed = True
            self.batcher.release(self)


def _nothing() -> None:
    """A command that only wakes the thread."""


class Batcher:
    """One session of many rows. `batching=False` takes one row at a time, to compare with."""

    def __init__(
        self,
        session: Session,
        *,
        window: int = 1024,
        words_per_second: float = 100.0,
        batching: bool = True,
        on_turn: Callable[[Turn], None] | None = None,
    ) -> None:
        self.session, self.window, self.batching = session, window, batching
        self.words_per_second, self.on_turn = words_per_second, on_turn
        self.free = list(range(len(session.rows)))[::-1]
        self.lanes: dict[int, Lane] = {}  # the thread's
        self.busy = False  # something was done in the last turn
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._out: list[tuple[Lane, Numbered | Fault]] = []

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

    @property
    def idle(self) -> bool:
        """Nothing to do and nothing on its way; may be late by one turn."""
        return not self.busy and self._commands.empty()

    def post(self, command: Callable[[], None]) -> None:
        self._commands.put(command)

    def open(self, owner: Callable[[Numbered | Fault], None], threshold: float) -> Lane | None:
        """A lane to a free row; None: there is none. `owner` is called in the event loop."""
        if not self.free:
            return None
        lane = Lane(self, self.free.pop(), owner)

        def begin() -> None:
            self.session.reset(lane.row)
            self.set_threshold(threshold, lane.row)
            self.lanes[lane.row] = lane

        self.post(begin)
        return lane

    def set_threshold(self, value: float, row: int) -> None:
        """In the thread; other policies have none."""
        if self.session.policy.learned:
            self.session.set_decoding(Decoding(threshold=value), row)

    def release(self, lane: Lane) -> None:
        """Called by Lane.close(); commands keep their order, so the row can be given away now."""

        def end() -> None:
            if self.lanes.get(lane.row) is lane:
                del self.lanes[lane.row]
                self.session.reset(lane.row)

        self.post(end)
        self.free.append(lane.row)

    # --- the thread ---

    def _run(self) -> None:
        timeout: float | None = None
        while True:
            try:
                command = self._commands.get(timeout=timeout)
                self.busy = True
                while command is not None:
                    command()
                    command = self._commands.get_nowait()
                return  # None: stop
            except queue.Empty:
                pass
            timeout = self._turn()
            self.busy = timeout is not None

    def _turn(self) -> float | None:
        """One turn; seconds until the next can do something, None: when a command comes."""
        wait: float | None = None
        light: list[int] = []
        heavy: list[int] = []
        for row, lane in list(self.lanes.items()):
            if lane.full:
                continue
            try:
                seconds = self._feed(lane)
            except Exception as error:
                self._fail([row], error)
                continue
            if not self.session.wants_turn(row):
                if seconds:
                    wait = seconds if wait is None else min(wait, seconds)
                self._rest(lane)
            elif lane.size > LIGHT and self.session.rows[row].queue:
                heavy.append(row)
            else:
                light.append(row)
        # a long word goes alone, and one of them a turn: rows of a step are padded to the longest
        heavy = sorted(heavy, key=lambda row: self.lanes[row].stamp)[:1]
        for group in [*([light] if self.batching else [[row] for row in light]), heavy]:
            if group:
                self._advance(group)
                self._deliver()
        self._deliver()
        return 0 if light or heavy else wait

    def _feed(self, lane: Lane) -> float:
        """Give the row its next words; seconds until it may have them."""
        state, session = self.session.rows[lane.row], self.session
        if state.queue or state.closed:
            return 0.0
        if not lane.waiting:
            if lane.last:
                session.close(lane.row)
            return 0.0
        now = time.monotonic()
        most = max(LIGHT * 1.0, self.words_per_second)  # what was not used in a second is lost
        lane.allowance += (now - lane.stamp) * self.words_per_second
        lane.allowance, lane.stamp = min(lane.allowance, most), now
        if lane.allowance < 1:
            return (1 - lane.allowance) / self.words_per_second
        words: list[str] = []
        size = 0
        while lane.waiting and lane.allowance >= 1 and size < LIGHT:
            word = lane.waiting[0][:LONGEST_WORD]
            tokens = len(session.codec.encode_source_word(word))
            if words and size + tokens > LIGHT:
                break
            words.append(word)
            size += tokens
            lane.waiting.popleft()
            lane.allowance -= 1
        session.push(" ".join(words), lane.row)
        if lane.last and not lane.waiting:
            session.close(lane.row)
        lane.size = size
        return 0.0

    def _advance(self, rows: Sequence[int]) -> None:
        began = time.perf_counter()
        try:
            happened = self.session.advance(rows)
        except Exception as error:
            self._fail(rows, error)
            return
        for row, event in happened:
            self._say(self.lanes[row], event)
        for row in rows:
            self._rest(self.lanes[row])
        if self.on_turn is not None:
            self.on_turn(Turn(len(rows), time.perf_counter() - began))

    def _fail(self, rows: Sequence[int], error: Exception) -> None:
        """These streams are over, and only these. What the error says may repeat a client."""
        logger.error("the model failed: %s", type(error).__name__)
        logger.debug("the model failed", exc_info=error)
        for row in rows:
            self._out.append((self.lanes.pop(row), Fault()))
            self.session.reset(row)

    def _say(self, lane: Lane, event: events.Event) -> None:
        lane.produced += 1
        message: Numbered
        match event:
            case events.Write(text, delay, heads):
                at = round((time.monotonic() - lane.started) * 1e3)
                message = Write(text, delay, heads, lane.segment, at, lane.produced)
                lane.written += len(text.split())
            case events.End(words):
                message = End(words, lane.segment, lane.produced)
                lane.segment += 1
            case events.Read():
                message = Read(lane.heard, lane.produced)
        self._out.append((lane, message))

    def _rest(self, lane: Lane) -> None:
        """After a turn: what was heard, whether more is wanted, whether all is done."""
        state = self.session.rows[lane.row]
        lane.heard = state.read
        if state.done:
            lane.produced += 1
            seconds = round(time.monotonic() - lane.started, 3)
            stats = Stats(lane.heard, lane.written, lane.segment, seconds)
            self._out.append((lane, Finished(stats, lane.produced)))
            del self.lanes[lane.row]
        elif (
            lane.told < lane.heard
            and not (lane.waiting or lane.last)
            and not self.session.wants_turn(lane.row)
        ):
            lane.told = lane.heard
            self._say(lane, events.Read())

    def _deliver(self) -> None:
        if self._out and self._loop is not None:
            out, self._out = self._out, []
            try:
                self._loop.call_soon_threadsafe(_hand_over, out)
            except RuntimeError:  # the loop is closed: nobody listens any more
                self.lanes.clear()


def _hand_over(out: list[tuple[Lane, Numbered | Fault]]) -> None:
    for lane, message in out:
        if not lane.closed:
            lane.owner(message)
