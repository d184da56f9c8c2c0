"""Sessions: feed words, get words, as Algorithm 1 of the paper decides; for B rows at once.

What is written depends on where the heads stand, never on how the source happened to arrive:
word by word and the whole sentence at once give the same words with the same delays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from simultan.data.alphabet import Alphabet
from simultan.data.languages import ends_sentence
from simultan.data.vocabulary import EOS, UNK
from simultan.data.writer import LONGEST_WORD, WORD_END, WordWriter
from simultan.model import TranslationModel
from simultan.streaming.agents import load_agent
from simultan.streaming.agents.whole import Whole
from simultan.streaming.backends import Backend, OfflineModel
from simultan.streaming.backends.bidirectional import Bidirectional
from simultan.streaming.backends.incremental import Incremental
from simultan.streaming.copying import Sieve
from simultan.streaming.deciders import AgentsDecide, HeadsDecide
from simultan.streaming.decoding import DEFAULT, Decoding
from simultan.streaming.ends import EndFinder, EndNetwork
from simultan.streaming.guards import Guard
from simultan.streaming.lags import UNMEASURED, Lags
from simultan.streaming.numbers import Numbers
from simultan.streaming.row import Choice, Row

__all__ = ["End", "Event", "Read", "Session", "Text", "Write"]

CHUNK = 256  # source tokens a row reads at once: a huge paste must not hold up the other rows
LONGEST_SEGMENT = 96  # source tokens; models are trained on one sentence to four
LONGEST_READ = 256  # source tokens that a windowed model reads without writing anything


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


class Text(Protocol):
    """What a session needs to turn words into tokens and tokens into words; see Codec."""

    def split_source(self, text: str) -> list[str]: ...
    def encode_source_word(self, word: str) -> list[int]: ...
    def writer(self) -> WordWriter: ...


class Session:
    """One stream, or B of them in step. feed() and finish() for one row; push(), close() and
    advance() for many: they queue words and take every row on by at most one target token."""

    def __init__(
        self,
        model: TranslationModel | OfflineModel,
        codec: Text,
        decoding: Decoding | str = DEFAULT,
        *,
        rows: int = 1,
        segment: bool = True,
        longest: int | None = None,
        lags: Lags = UNMEASURED,
        ends: EndNetwork | None = None,
    ) -> None:
        """`segment`: a sentence end in the source, or `longest` tokens without one, closes a
        segment; `ends` finds those that nobody wrote. A windowed model needs no segments, unless
        `longest` is given or it has read far without writing anything."""
        if rows < 1:
            raise ValueError(f"rows = {rows}: a session has at least one")
        if longest is not None and longest < 1:
            raise ValueError(f"longest = {longest}: a segment has at least one token")
        self.codec, self.segment, self.lags = codec, segment, lags
        self.alphabet: Alphabet | None = getattr(codec, "alphabet", None)
        self.source_language: str = getattr(codec, "source_language", "")
        self.target_language: str = getattr(codec, "target_language", "")
        self.longest = longest or LONGEST_SEGMENT
        self.policy = model.policy
        windowed = isinstance(model, TranslationModel) and bool(model.window)
        self.endless = segment and windowed and longest is None
        self.cuts = segment and not self.endless
        self.ends = ends if self.cuts else None
        self.rows = [self._new_row() for _ in range(rows)]
        self.decider: HeadsDecide | AgentsDecide
        if not isinstance(model, TranslationModel):
            self.decider = AgentsDecide(model.backend(rows), self.rows, load_agent(model.agent))
        elif model.policy.name == "offline":
            own: Backend = Incremental(model, rows)
            if model.bidirectional:
                own = Bidirectional(model).backend(rows)
            self.decider = AgentsDecide(own, self.rows, Whole())
        else:
            self.decider = HeadsDecide(model, self.rows)
        if self.endless:
            self.longest = LONGEST_READ
        for row in range(rows):
            self.set_decoding(decoding, row)
        self.on_token: Callable[[Choice], None] | None = None

    def _new_row(self) -> Row:
        numbers = Numbers(self.source_language, self.target_language)
        finder = EndFinder(self.ends, self.codec.encode_source_word, self.source_language)
        return Row(self.codec.writer(), Guard(), Sieve(self.alphabet), numbers, finder)

    def set_decoding(self, decoding: Decoding | str, row: int = 0) -> None:
        """Decode this row so from its next token on."""
        self._at(row)
        chosen = Decoding.parse(decoding).resolve(self.policy, self.lags)
        if chosen.whole:
            raise ValueError(f"{chosen}: a stream cannot search whole sentences; use translate()")
        self.decider.set_decoding(chosen, row)

    def _at(self, row: int) -> Row:
        if not 0 <= row < len(self.rows):
            raise ValueError(f"row {row}: this session has rows 0 to {len(self.rows) - 1}")
        return self.rows[row]

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
        if not isinstance(text, str):
            raise TypeError(f"a session is fed text, not {type(text).__name__}")
        state = self._at(row)
        if state.closed:
            raise ValueError("this row's source is finished: reset() it or open a new session")
        state.queue.extend(self.codec.split_source(text))

    def close(self, row: int = 0) -> None:
        """The row's source is over; closing twice is closing."""
        state = self._at(row)
        state.closed = True
        if not state.unread and not state.available and state.told == state.read:
            state.done = True  # nothing was said, or nothing since the last segment

    @torch.inference_mode()
    def reset(self, row: int = 0) -> None:
        """The row becomes a new stream."""
        self._at(row)
        self.decider.reset(row)
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
        events: list[tuple[int, Event]] = []
        self._read([row for row in chosen if self.rows[row].waiting], events)
        ready = []
        for row in chosen:
            if self.rows[row].waiting:  # nothing was read that the model could translate
                continue
            held, self.rows[row].held = self.rows[row].held, None
            if held is None or self._end_is_early(held, events):
                ready.append(row)
        if ready:
            choices = self.decider.choose(ready)
            for row in ready:  # unless it writes
                self.rows[row].waiting = not self.decider.is_ready(row)
            self._write(choices, events)
        return events

    def _read(self, rows: list[int], events: list[tuple[int, Event]]) -> None:
        """Read queued words, up to the end of the segment."""
        taken = [(row, self._next_tokens(row, events)) for row in rows]
        taken = [(row, tokens) for row, tokens in taken if tokens]
        if not taken:
            return
        reading = [row for row, _ in taken]
        self.decider.read(
            reading, [tokens for _, tokens in taken], [self.rows[row].ended for row in reading]
        )
        for row in reading:
            self.rows[row].waiting = False

    def _next_tokens(self, row: int, events: list[tuple[int, Event]]) -> list[int]:
        """The tokens of the next words; end-of-sequence last, if the segment ends there."""
        state = self.rows[row]
        length = state.available
        start = 0
        if self.endless:  # what counts is how much was read since the heads last moved on
            start = length if state.held else max(state.reached, state.floor)
        room = start + self.longest - length if self.segment else CHUNK
        tokens: list[int] = []
        end = room <= 0 or not state.unread
        while len(tokens) < min(CHUNK, room) and not end:
            taken = state.finder.take(state.queue, state.closed)
            if taken is None:
                break
            if self.cuts:
                state.recent.append(taken.word)
            heard = state.hear(taken)
            if heard.text:
                pieces = self.codec.encode_source_word(heard.text)[:LONGEST_WORD] or [UNK]
                state.word_of += [state.words] * len(pieces)
                tokens += pieces
            self._say(row, state.copies.first(), state.delay(state.read), events)
            end = state.closed and not state.unread
            if self.segment:
                end = end or taken.ends or ends_sentence(heard.word, self.source_language)
                end = end or (len(tokens) >= room and not self.endless)
        if end and not state.words:
            self._tell_end(row, state.read, events)
            state.done = state.closed and not state.unread
        elif end:
            tokens.append(EOS)
            state.word_of.append(state.words + 1)
            state.ended = True
        return tokens

    def _write(self, choices: list[Choice], events: list[tuple[int, Event]]) -> None:
        """Commit the tokens that were chosen."""
        committed: dict[int, int] = {}
        for choice in choices:
            state = self.rows[choice.row]
            furthest = max(map(max, choice.token_heads))
            if self._is_over(choice, furthest):
                self._end_is_early(choice, events)
                continue
            if self.on_token is not None and choice.token != WORD_END:
                self.on_token(choice)
            self._emit(choice, state.writer.push(choice.token), events)
            committed[choice.row] = choice.token
            state.committed += 1
            state.waiting = False  # there may be more to write without reading
            state.reached = furthest
            if choice.token != WORD_END:
                state.guard.note(choice.token, furthest)
        if committed:
            self.decider.backend.commit(list(committed), list(committed.values()))
            for row in committed:
                if self.endless:  # a head must not keep everything alive
                    self._move_on(row, self.rows[row].reached - self.longest)
                self._forget(row)

    def _is_over(self, choice: Choice, furthest: int) -> bool:
        """Whether the model says so, or says nothing that has to do with the source."""
        state = self.rows[choice.row]
        if choice.token in (EOS, WORD_END):
            return choice.token == EOS
        enough = state.written >= 2 * state.word(furthest) + 3
        enough = enough and state.writer.is_between(choice.token)
        return enough or state.guard.stuck(choice.token, furthest)

    def _restart(self, row: int, place: int) -> Row:
        """A new segment that begins after this word of the stream."""
        state = self.rows[row]
        self.reset(row)
        fresh = self.rows[row]
        fresh.queue, fresh.closed = state.queue, state.closed
        again = state.recent[place - state.start :]
        again += [pending.word for pending in state.finder.pending]
        fresh.queue.extendleft(reversed(again))
        fresh.read = fresh.start = place
        fresh.told, fresh.latest = state.told, state.latest
        return fresh

    def _end_is_early(self, choice: Choice, events: list[tuple[int, Event]]) -> bool:
        """An end of sentence counts once a head has seen the source's last word.

        Before that it means: nothing more to say about what was read. All heads move on to the
        next word (True). While nobody knows whether there is a next word it is held.
        """
        state = self.rows[choice.row]
        word = state.word(max(map(max, choice.token_heads)))
        if word < state.words or (not state.ended and state.expects):
            following = state.tokens_of(word)
            if self.cuts and following > self.longest // 3:
                self._cut(choice, events)  # all that was read is said: nothing is lost
                return False
            state.guard.moved()
            state.waiting = False
            self._move_on(choice.row, following)
            self._forget(choice.row)
            return True
        if state.ended:
            self._end(choice, events)
        else:
            state.held, state.waiting = choice, True
        return False

    def _move_on(self, row: int, token: int) -> None:
        """Source tokens before this one are translated."""
        state = self.rows[row]
        if token > state.floor:
            state.floor = token
            self.decider.move_on(row, token)

    def _cut(self, choice: Choice, events: list[tuple[int, Event]]) -> None:
        """End the segment after the word on which the furthest head stands."""
        row, state = choice.row, self.rows[choice.row]
        furthest = max(map(max, choice.token_heads))
        place = state.place(furthest)
        self._emit(choice, state.writer.flush(), events)
        self._say(row, state.copies.rest(place) + state.numbers.rest(place), place, events)
        self._tell_end(row, max(place, state.latest), events)
        fresh = self._restart(row, place)
        fresh.copies, fresh.numbers = state.copies, state.numbers
        fresh.copies.forget(state.word(furthest))

    def _end(self, choice: Choice, events: list[tuple[int, Event]]) -> None:
        """The segment is translated; the row is done, or goes on with the next one."""
        row, state = choice.row, self.rows[choice.row]
        self._emit(choice, state.writer.flush(), events)
        rest = state.copies.rest() + state.numbers.rest()
        self._say(row, rest, state.delay(state.read), events)
        self._tell_end(row, state.read, events)
        fresh = self._restart(row, state.read)
        fresh.sieve = state.sieve
        fresh.done = fresh.closed and not fresh.unread

    def _tell_end(self, row: int, words: int, events: list[tuple[int, Event]]) -> None:
        state = self.rows[row]
        if self.segment and state.told < words:
            state.told = words
            events.append((row, End(words)))

    def _emit(self, choice: Choice, words: list[str], events: list[tuple[int, Event]]) -> None:
        """Written words, with what is to be copied before them."""
        if not words:
            return
        state = self.rows[choice.row]
        flat = [token for layer in choice.token_heads for token in layer]
        copies = state.copies.due(state.word(min(flat)), state.written)
        words = [state.numbers.check(word, state.place(max(flat))) for word in words]
        state.written += len(words)
        heads = [[state.place(token) for token in layer] for layer in choice.token_heads]
        delay = state.delay(state.place(choice.delay - 1))
        self._say(choice.row, copies + words, delay, events, heads)

    def _say(
        self,
        row: int,
        words: list[str],
        delay: int,
        events: list[tuple[int, Event]],
        heads: list[list[int]] | None = None,
    ) -> None:
        if words:
            state = self.rows[row]
            state.latest = delay = max(state.latest, delay)  # nothing is written before its turn
            heads = heads or [[delay] * self.decider.heads for _ in range(self.decider.layers)]
            events.append((row, Write(" ".join(words), delay, heads)))

    def _forget(self, row: int) -> None:
        """A stream without end must not remember every word it has heard."""
        state = self.rows[row]
        if len(state.word_of) > 4 * CHUNK:
            needed = self.decider.needed(row)
            if needed - state.first > 2 * CHUNK:
                state.forget(needed)
