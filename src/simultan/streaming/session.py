"""Sessions: feed words, get words, as Algorithm 1 of the paper decides; for B rows at once.

What is written depends on where the heads stand, never on how the source happened to arrive:
word by word and the whole sentence at once give the same words with the same delays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from simultan.data.codec import Codec
from simultan.data.text import StreamingDetokenizer
from simultan.data.vocabulary import BOS, EOS, UNK
from simultan.model import TranslationModel
from simultan.model.state import Step
from simultan.streaming.guards import LONGEST_WORD, Guard, ends_sentence

__all__ = ["End", "Event", "Read", "Session", "Write"]

CHUNK = 256  # source tokens a row reads at once: a huge paste must not hold up the other rows
LONGEST_SEGMENT = 256  # source tokens; far more than that a model has not seen in training


@dataclass(frozen=True)
class Read:
    """More source is wanted."""


@dataclass(frozen=True)
class Write:
    """Whole, detokenised words; nothing written is ever taken back."""

    text: str
    delay: int  # source words it took to write this
    heads: list[list[int]]  # [L, H] the source word each head stands on, from 1


@dataclass(frozen=True)
class End:
    """A segment is translated; only a session that segments says so."""

    words: int  # of the source so far


Event = Read | Write | End


@dataclass
class _Row:
    """The text side of one row: what was heard, what is being written."""

    detokenizer: StreamingDetokenizer
    guard: Guard
    queue: deque[str] = field(default_factory=deque)  # words fed, not yet read
    read: int = 0  # words read, of the whole stream
    before: int = 0  # of them, words of earlier segments
    closed: bool = False  # no more words will be fed
    done: bool = False  # and all of them are translated
    waiting: bool = True  # nothing can be written before more is read
    reached: int = 0  # the source token the furthest head stood on at the last write
    first: int = 0  # the source token that word_of[0] stands for
    word_of: list[int] = field(default_factory=list)  # the word of each source token, from 1
    last: int = BOS  # the last token written
    pieces: list[int] = field(default_factory=list)  # of the target word under way
    written: int = 0  # target words of this segment
    held: list[list[int]] | None = None  # heads at an end of sentence that may have come too early


class Session:
    """One stream, or B of them in step. feed() and finish() for one row; push(), close() and
    advance() for many: they queue words and take every row on by at most one target token."""

    def __init__(
        self,
        model: TranslationModel,
        codec: Codec,
        *,
        rows: int = 1,
        threshold: float = 0.5,
        k: int | None = None,
        segment: bool = False,
        longest: int | None = None,
    ) -> None:
        """`segment`: a sentence end in the source, or `longest` tokens without one, closes a
        segment. A windowed model goes on for ever: it is cut only if `longest` is given, or if
        it has read so far without writing anything."""
        if rows < 1:
            raise ValueError(f"rows = {rows}: a session has at least one")
        if longest is not None and longest < 1:
            raise ValueError(f"longest = {longest}: a segment has at least one token")
        self.model, self.codec, self.segment = model, codec, segment
        self.endless = segment and bool(model.window) and longest is None
        self.longest = longest or LONGEST_SEGMENT
        self.device = next(model.parameters()).device
        with torch.inference_mode():
            self.state = model.initial_state(rows)
        self.thresholds = [0.5] * rows
        for row in range(rows):
            self.set_threshold(threshold, row)
            if k is not None:
                self.set_lag(k, row)
        self.rows = [self._new_row() for _ in range(rows)]
        self.on_token: Callable[[int, int, list[list[int]]], None] | None = None

    def _new_row(self) -> _Row:
        return _Row(self.codec.pipeline.detokenizer(), Guard())

    def set_threshold(self, threshold: float, row: int = 0) -> None:
        """A head stops where p_choose is above this: lower is faster."""
        if not 0 < threshold < 1:
            raise ValueError(f"threshold = {threshold}: it must lie between 0 and 1")
        self.thresholds[row] = threshold

    def set_lag(self, k: int, row: int = 0) -> None:
        """wait-k's k, in source tokens, for a model of a fixed policy (an offline one, too)."""
        if self.model.policy.learned:
            raise ValueError(f"k = {k}: this model's policy, {self.model.policy.name}, has no k")
        if k < 1:
            raise ValueError(f"k = {k}: it must be at least 1")
        self.state.set_lag(row, k)

    # --- one stream ---

    def feed(self, text: str, row: int = 0) -> list[Event]:
        """New source words, and what they let the model write."""
        self.push(text, row)
        return self._drain(row)

    def finish(self, row: int = 0) -> list[Event]:
        """The source is over: write the rest."""
        self.close(row)
        return self._drain(row)

    def _drain(self, row: int) -> list[Event]:
        events: list[Event] = []
        while self.wants_turn(row):
            events += [event for _, event in self.advance([row])]
        if not self.rows[row].done:
            events.append(Read())
        return events

    # --- many streams ---

    def push(self, text: str, row: int = 0) -> None:
        """Queue source words."""
        if self.rows[row].closed:
            raise ValueError("this row's source is finished: reset() it or open a new session")
        self.rows[row].queue.extend(self.codec.pipeline.split_source(text))

    def close(self, row: int = 0) -> None:
        """The row's source is over; closing twice is closing."""
        state = self.rows[row]
        state.closed = True
        if not state.queue and not self.state.available[row]:
            state.done = True  # nothing was said, or nothing since the last segment

    @torch.inference_mode()
    def reset(self, row: int = 0) -> None:
        """The row becomes a new stream."""
        self.state.reset(row)
        self.rows[row] = self._new_row()

    def wants_turn(self, row: int) -> bool:
        """Whether advance() could do something for this row now."""
        state = self.rows[row]
        return not state.done and (not state.waiting or bool(state.queue) or state.closed)

    @torch.inference_mode()
    def advance(self, rows: Sequence[int] | None = None) -> list[tuple[int, Event]]:
        """One turn for every row that has something to do: read if it must, write a token."""
        chosen = range(len(self.rows)) if rows is None else rows
        chosen = [row for row in chosen if self.wants_turn(row)]
        self._read([row for row in chosen if self.rows[row].waiting])
        events: list[tuple[int, Event]] = []
        ready = []
        for row in chosen:
            held, self.rows[row].held = self.rows[row].held, None
            if held is None or self._end_is_early(row, held, events):
                ready.append(row)
        if ready:
            step = self._step(ready)
            for row in ready:
                self.rows[row].waiting = True  # unless it writes
            self._write(step, events)
        return events

    def _step(self, rows: list[int]) -> Step:
        """One turn of the decoder; a rule over an offline model decides here."""
        last = [self.rows[row].last for row in rows]
        return self.model.step(last, self.state, rows, [self.thresholds[row] for row in rows])

    def _read(self, rows: list[int]) -> None:
        """Read queued words, up to the end of the segment."""
        if not rows:
            return
        taken = [self._next_tokens(row) for row in rows]
        counts = [len(tokens) for tokens in taken]
        padded = [tokens + [EOS] * (max(counts) - len(tokens)) for tokens in taken]
        self.model.extend(
            torch.tensor(padded, device=self.device),
            self.state,
            rows,
            counts,
            [tokens[-1] == EOS for tokens in taken],
        )
        for row in rows:
            self.rows[row].waiting = False

    def _next_tokens(self, row: int) -> list[int]:
        """The tokens of the next words; end-of-sequence last, if the segment ends there."""
        state = self.rows[row]
        length = self.state.available[row]
        start = 0
        if self.endless:  # what counts is how much was read since the heads last moved on
            start = length if state.held else max(state.reached, self.state.scan_from[row])
        room = start + self.longest - length if self.segment else CHUNK
        tokens: list[int] = []
        end = not state.queue or room <= 0
        while state.queue and len(tokens) < min(CHUNK, room) and not end:
            word = state.queue.popleft()
            pieces = self.codec.encode_source_word(word)[:LONGEST_WORD] or [UNK]
            state.read += 1
            state.word_of += [state.read] * len(pieces)
            tokens += pieces
            end = state.closed and not state.queue
            if self.segment:
                end = end or ends_sentence(word) or (len(tokens) >= room and not self.endless)
        if end:
            tokens.append(EOS)
            state.word_of.append(state.read + 1)
        return tokens

    def _write(self, step: Step, events: list[tuple[int, Event]]) -> None:
        """Commit the tokens the model has decided on."""
        if not step.rows:
            return
        tokens = step.best(EOS)  # what comes before it, padding and begin, is nothing to write
        positions = step.positions.tolist()
        committed = []
        for row, token, heads in zip(step.rows, tokens, positions, strict=True):
            state = self.rows[row]
            furthest = max(map(max, heads))
            if token == EOS or state.guard.stuck(token, furthest):
                self._end_is_early(row, heads, events)
                continue
            committed.append(row)
            state.waiting = False  # there may be more to write without reading
            state.last, state.reached = token, furthest
            state.guard.note(token, furthest)
            state.pieces.append(token)
            if self.on_token is not None:
                self.on_token(row, token, heads)
            vocabulary = self.codec.target_vocabulary
            if vocabulary.ends_word(token) or len(state.pieces) >= LONGEST_WORD:
                word = vocabulary.decode_word(state.pieces)
                state.pieces = []
                state.written += 1
                self._emit(row, state.detokenizer.push(word), heads, events)
        if committed:
            self.state.commit(committed)
            for row in committed:
                if self.endless:  # a head must not keep everything alive
                    self.state.skip_to(row, self.rows[row].reached - self.longest)
                self._forget(row)

    def _end_is_early(
        self, row: int, heads: list[list[int]], events: list[tuple[int, Event]]
    ) -> bool:
        """An end of sentence counts once a head has seen the source's last word.

        Before that it means: nothing more to say about what was read. All heads move on to the
        next word (True). While nobody knows whether there is a next word it is held.
        """
        state = self.rows[row]
        word = self._word(row, max(map(max, heads)))
        if word < state.read or (state.queue and not self.state.finished[row]):
            state.guard.moved()
            state.waiting = False
            self.state.skip_to(row, state.first + bisect_right(state.word_of, word))
            self._forget(row)
            return True
        if self.state.finished[row]:
            self._end(row, heads, events)
        else:
            state.held, state.waiting = heads, True
        return False

    def _end(self, row: int, heads: list[list[int]], events: list[tuple[int, Event]]) -> None:
        """The segment is translated; the row is done, or goes on with the next one."""
        state = self.rows[row]
        words: list[str] = []
        if state.pieces:  # a word that was never completed
            words += state.detokenizer.push(self.codec.target_vocabulary.decode_word(state.pieces))
        self._emit(row, words + state.detokenizer.flush(), heads, events)
        if self.segment:
            events.append((row, End(state.read)))
        self.reset(row)
        fresh = self.rows[row]
        fresh.queue, fresh.closed = state.queue, state.closed
        fresh.read = fresh.before = state.read
        fresh.done = state.closed and not state.queue

    def _emit(
        self,
        row: int,
        words: list[str],
        heads: list[list[int]],
        events: list[tuple[int, Event]],
    ) -> None:
        if words:
            state = self.rows[row]
            word_of, first = state.word_of, state.first
            at = [[word_of[token - first] for token in layer] for layer in heads]
            if max(map(max, at)) > state.read:  # the end is of the last word
                at = [[min(word, state.read) for word in layer] for layer in at]
            events.append((row, Write(" ".join(words), self._delay(row, at), at)))

    def tokens_needed(self, row: int, heads: list[list[int]]) -> int:
        """The delay of a token in source tokens, to be asked from on_token."""
        return max(map(max, heads)) + 1

    def _delay(self, row: int, heads: list[list[int]]) -> int:
        """What was needed: the word the furthest head stands on."""
        return max(map(max, heads))

    def _word(self, row: int, token: int) -> int:
        """The source word, from 1, that a source token belongs to; the end is of the last."""
        state = self.rows[row]
        return min(state.word_of[token - state.first], state.read)

    def _forget(self, row: int) -> None:
        """A stream without end must not remember every word it has heard."""
        state = self.rows[row]
        if len(state.word_of) > 4 * CHUNK:
            drop = self.state.needed(row) - state.first
            if drop > 2 * CHUNK:
                del state.word_of[:drop]
                state.first += drop
