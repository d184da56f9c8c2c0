"""Sessions: feed words, get words, as Algorithm 1 of the paper decides; for B rows at once.

What is written depends on where the heads stand, never on how the source happened to arrive:
word by word and the whole sentence at once give the same words with the same delays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from simultan.data.codec import Codec
from simultan.data.text import StreamingDetokenizer
from simultan.data.vocabulary import BOS, EOS
from simultan.model import TranslationModel
from simultan.model.state import Step
from simultan.streaming.guards import Guard, ends_sentence

__all__ = ["Event", "Read", "Session", "Write"]

END = None  # in a row's queue: the source ends here
CHUNK = 256  # source tokens a row may have encoded at once: a huge paste must not hold up others


@dataclass(frozen=True)
class Read:
    """More source is wanted."""


@dataclass(frozen=True)
class Write:
    """Whole, detokenised words; nothing written is ever taken back."""

    text: str
    delay: int  # source words read
    heads: list[list[int]]  # [L, H] the source word each head stands on, from 1


Event = Read | Write


@dataclass
class _Row:
    """The text side of one row: what was said, what is being written."""

    detokenizer: StreamingDetokenizer
    guard: Guard
    queue: deque[str | None] = field(default_factory=deque)  # words to encode, and END
    closed: bool = False  # finish() was called
    done: bool = False
    words: int = 0  # source words fed, in all
    encoded_words: int = 0  # of them, encoded
    segment_words: int = 0  # words in the segment under way
    first_token: int = 0  # the source token word_of[0] stands for
    word_of: list[int] = field(default_factory=list)  # the word of each source token, from 1
    last: int = BOS  # the last token written
    pieces: list[int] = field(default_factory=list)  # of the target word under way
    held: Step | None = None  # an end of sentence that may have come too early
    idle: int = -1  # source tokens there were when the row last asked for more


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
        longest: int = 100,
    ) -> None:
        """`segment`: a sentence end (or `longest` words) in the source starts a new segment."""
        if rows < 1:
            raise ValueError(f"rows = {rows}: a session has at least one")
        self.model, self.codec = model, codec
        self.segment, self.longest = segment, longest
        self.device = next(model.parameters()).device
        with torch.inference_mode():
            self.state = model.initial_state(rows)
        self.thresholds = [0.5] * rows
        for row in range(rows):
            self.set_threshold(threshold, row)
        if k is not None:
            self.set_lag(k)
        self.rows = [self._new_row() for _ in range(rows)]
        self.on_token: Callable[[int, int, list[list[int]]], None] | None = None

    def _new_row(self) -> _Row:
        return _Row(self.codec.pipeline.detokenizer(), Guard())

    def set_threshold(self, threshold: float, row: int = 0) -> None:
        """A head stops where p_choose is above this: lower is faster."""
        if not 0 < threshold < 1:
            raise ValueError(f"threshold = {threshold}: it must lie between 0 and 1")
        self.thresholds[row] = threshold

    def set_lag(self, k: int) -> None:
        """wait-k's k, for a model of a fixed policy (an offline one too: test-time wait-k)."""
        if self.model.policy.learned:
            raise ValueError(f"k = {k}: this model's policy, {self.model.policy.name}, has no k")
        if k < 1:
            raise ValueError(f"k = {k}: it must be at least 1")
        self.state.decoder.lags = [k] * len(self.state.decoder.lags)

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
        state = self.rows[row]
        if state.closed:
            raise ValueError("this row's source is finished: reset() it or open a new session")
        for word in self.codec.pipeline.split_source(text):
            state.queue.append(word)
            state.words += 1
            state.segment_words += 1
            if self.segment and (ends_sentence(word) or state.segment_words >= self.longest):
                state.queue.append(END)
                state.segment_words = 0

    def close(self, row: int = 0) -> None:
        """The row's source is over; closing twice is closing."""
        state = self.rows[row]
        if not state.closed:
            state.closed = True
            state.queue.append(END)

    def reset(self, row: int = 0) -> None:
        """The row becomes a new stream."""
        self.model.reset(row, self.state)
        self.rows[row] = self._new_row()

    def wants_turn(self, row: int) -> bool:
        """Whether advance() could do something for this row now."""
        state, decoder = self.rows[row], self.state.decoder
        if state.done:
            return False
        if state.queue and not decoder.finished[row]:
            return True
        return decoder.available[row] > state.idle or (decoder.finished[row] and state.held is None)

    @torch.inference_mode()
    def advance(self, rows: Sequence[int] | None = None) -> list[tuple[int, Event]]:
        """One turn for every row that has something to do: read what is queued, write a token."""
        chosen = range(len(self.rows)) if rows is None else rows
        chosen = [row for row in chosen if self.wants_turn(row)]
        self._encode([row for row in chosen if self.rows[row].queue])
        events: list[tuple[int, Event]] = []
        decoder = self.state.decoder
        ready = []
        for row in chosen:
            state = self.rows[row]
            if decoder.finished[row] and decoder.available[row] == 1:
                self._end(row, None, events)  # an empty sentence: nothing to say
            elif state.held is None or self._reconsider(row, events):
                ready.append(row)
        if ready:
            step = self._step(ready)
            for row in ready:
                self.rows[row].idle = decoder.available[row]
            self._write(step, events)
        return events

    def _step(self, rows: list[int]) -> Step:
        """One turn of the decoder; a rule over an offline model decides here."""
        last = [self.rows[row].last for row in rows]
        return self.model.step(last, self.state, rows, [self.thresholds[row] for row in rows])

    def _encode(self, rows: Sequence[int]) -> None:
        """Read queued words, up to the end of the segment."""
        decoder = self.state.decoder
        rows = [row for row in rows if not decoder.finished[row]]
        if not rows:
            return
        taken: list[list[int]] = []
        for row in rows:
            state = self.rows[row]
            tokens: list[int] = []
            while state.queue and len(tokens) < CHUNK:
                word = state.queue.popleft()
                if word is END:
                    tokens.append(EOS)
                    state.word_of.append(state.encoded_words)
                    break
                pieces = self.codec.encode_source_word(word)
                state.encoded_words += 1
                state.word_of += [state.encoded_words] * len(pieces)
                tokens += pieces
            taken.append(tokens)
        counts = [len(tokens) for tokens in taken]
        longest = max(counts)
        if longest == 0:  # words without a single piece
            return
        padded = [tokens + [EOS] * (longest - len(tokens)) for tokens in taken]
        some = [i for i, count in enumerate(counts) if count]
        self.model.extend(
            torch.tensor([padded[i] for i in some], device=self.device),
            self.state,
            [rows[i] for i in some],
            [counts[i] for i in some],
            [taken[i][-1] == EOS for i in some],
        )

    def _write(self, step: Step, events: list[tuple[int, Event]]) -> None:
        """Commit the tokens the model has decided on."""
        if not step.rows:
            return
        tokens = step.logits.argmax(-1).tolist()
        positions = step.positions.tolist()
        furthest = step.positions.flatten(1).amax(1).tolist()
        committed = []
        for i, row in enumerate(step.rows):
            state = self.rows[row]
            if tokens[i] == EOS or state.guard.stuck(tokens[i], furthest[i]):
                state.held = Step([row], step.logits[i : i + 1], step.positions[i : i + 1])
                self._reconsider(row, events)
                continue
            committed.append(row)
            state.guard.note(tokens[i])
            state.last = tokens[i]
            state.pieces.append(tokens[i])
            state.idle = -1  # there may be more to write without reading
            if self.on_token is not None:
                self.on_token(row, tokens[i], positions[i])
            if self.codec.target_vocabulary.ends_word(tokens[i]):
                word = self.codec.target_vocabulary.decode_word(state.pieces)
                state.pieces = []
                self._emit(row, state.detokenizer.push(word), positions[i], furthest[i], events)
        if committed:
            self.model.commit(committed, self.state)
            for row in committed:
                self._forget(row)

    def _reconsider(self, row: int, events: list[tuple[int, Event]]) -> bool:
        """An end of sentence counts once the heads have seen the source's last word.

        Before that it means: nothing more to say about what was read. All heads move past it,
        and the row goes on (True).
        """
        state, decoder = self.rows[row], self.state.decoder
        assert state.held is not None
        furthest = int(state.held.positions.max())
        if self._at_end(row, furthest):
            self._end(row, state.held, events)
        elif self._word(row, furthest) < state.encoded_words or (state.queue and state.queue[0]):
            state.held = None
            state.guard.moved()
            decoder.floor[row] = furthest + 1
            state.idle = -1
            return True
        else:
            state.idle = decoder.available[row]
        return False

    def _at_end(self, row: int, furthest: int) -> bool:
        """Whether a head stands on the last word of a finished source."""
        decoder = self.state.decoder
        if not decoder.finished[row]:
            return False
        return self._word(row, furthest) >= self._word(row, decoder.available[row] - 1)

    def _end(self, row: int, step: Step | None, events: list[tuple[int, Event]]) -> None:
        """The segment is translated; the row is done, or goes on with the next one."""
        state = self.rows[row]
        words: list[str] = []
        if state.pieces:  # a word that was never completed
            words += state.detokenizer.push(self.codec.target_vocabulary.decode_word(state.pieces))
        words += state.detokenizer.flush()
        if step is not None:
            positions = step.positions[0]
            self._emit(row, words, positions.tolist(), int(positions.max()), events)
        self.model.reset(row, self.state)
        fresh = self._new_row()
        fresh.queue, fresh.closed = state.queue, state.closed
        fresh.words, fresh.encoded_words = state.words, state.encoded_words
        fresh.segment_words = state.segment_words
        fresh.done = state.closed and not state.queue
        self.rows[row] = fresh

    def _emit(
        self,
        row: int,
        words: list[str],
        positions: list[list[int]],
        furthest: int,
        events: list[tuple[int, Event]],
    ) -> None:
        if words:
            heads = [[self._word(row, at) for at in layer] for layer in positions]
            events.append((row, Write(" ".join(words), self._word(row, furthest), heads)))

    def _word(self, row: int, token: int) -> int:
        """The source word, from 1, that a source token belongs to."""
        state = self.rows[row]
        return state.word_of[token - state.first_token]

    def _forget(self, row: int) -> None:
        """A stream without end must not remember every word it has heard."""
        state, decoder = self.rows[row], self.state.decoder
        if len(state.word_of) > 4096:
            keep = int(decoder.positions[row].min())
            if keep - state.first_token > 2048:
                del state.word_of[: keep - state.first_token]
                state.first_token = keep
