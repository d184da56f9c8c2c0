"""Captions as a live stream: words in their own time in, captions in real time out.

The words of a caption share its time by their letters; a word counts as spoken when it ends. A
written word is shown when the source words it needed are spoken and it has been computed:

    shown(i) = max(spoken(read(i)), free(i)) + computing(i)

where free(i) is when the translator is done with what came before. Nothing is laid out so that it
could be read any earlier.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from simultan.cues import Cue
from simultan.data.text import normalise
from simultan.streaming.guards import ends_sentence
from simultan.streaming.session import End, Event, Session, Write

__all__ = ["Heard", "Layout", "Shown", "Spoken", "lay_out", "speak", "translate", "written"]

Layout = Literal["blocks", "words"]
PAUSE = 2000  # ms of silence that end a sentence
LINE = 42  # letters; a caption has two lines
WAIT = 2000  # ms after which an unfinished caption is shown as it is
SHORTEST, LONGEST = 1000, 7000  # ms a caption stays
READING = 15  # letters a second
FLASH = 50  # ms: shorter captions only hold a line in place


@dataclass(frozen=True)
class Spoken:
    """A source word, from when it is begun to when it is over, in ms."""

    word: str
    begin: int
    end: int


@dataclass(frozen=True)
class Heard:
    """What a stream does next: a word that was heard, an event it led to, and when, in ms."""

    word: str  # empty for all but the first event of a word
    event: Event
    time: int


@dataclass(frozen=True)
class Shown:
    """A written word and when it could be shown, in ms; `last` of its sentence."""

    text: str
    time: int
    delay: int  # source words read, of the whole stream
    last: bool = False


def speak(cues: Sequence[Cue]) -> list[Spoken]:
    """The words of captions; one that runs into the next ends where that begins."""
    spoken: list[Spoken] = []
    starts = sorted(cue.start for cue in cues)
    for cue in _unrolled(cues):
        following = bisect_right(starts, cue.start)
        limit = starts[following] if following < len(starts) else cue.end
        span, passed = min(cue.end, limit) - cue.start, 0
        words = normalise(cue.text).split()
        letters = sum(len(word) + 1 for word in words)
        earliest = spoken[-1].end if spoken else 0  # captions that begin together take turns
        for word in words:
            begin = cue.start + span * passed // letters
            passed += len(word) + 1
            end = cue.start + span * passed // letters
            spoken.append(Spoken(word, max(earliest, begin), max(earliest, end)))
    return spoken


def _unrolled(cues: Sequence[Cue]) -> Iterator[Cue]:
    """Captions in time, without the lines that roll up: said before, shown again.

    A caption that goes on where the last one ended and repeats its last line above a new one, or
    flashes by, says that line for the second time.
    """
    before = Cue(0, 0, "")
    for cue in sorted(cues, key=lambda cue: cue.start):
        lines, shown = cue.text.split("\n"), before.text.split("\n")
        touches = cue.start - before.end <= FLASH
        if touches and (len(lines) > 1 or cue.end - cue.start <= FLASH):
            known = next((n for n in (2, 1) if lines[:n] == shown[-n:]), 0)
            yield Cue(cue.start, cue.end, "\n".join(lines[known:]))
        else:
            yield cue
        before = cue


def translate(
    session: Session,
    spoken: Iterable[Spoken],
    computing: float | None = 0.0,
    wait: Callable[[int], None] | None = None,
) -> Iterator[Heard]:
    """Each word as it is spoken, and what it leads to.

    `computing`: seconds assumed for each written word; None: what it takes is measured. `wait`
    is called with the time (ms) up to which nothing happens. Sentences end at full stops (the
    session must segment) and where a pause is long.
    """
    clock = _Clock(computing)
    before = last = 0  # words of the streams that a pause has ended; when the last word ended

    def run(word: str, at: int, work: Callable[[], list[Event]]) -> Iterator[Heard]:
        if wait is not None:
            wait(at)
        for number, (event, shown) in enumerate(clock.run(at, work)):
            if before and isinstance(event, Write):
                heads = [[head + before for head in layer] for layer in event.heads]
                event = Write(event.text, event.delay + before, heads)
            elif isinstance(event, End):
                event = End(event.words + before)
            yield Heard(word if number == 0 else "", event, shown)

    for heard, item in enumerate(spoken):
        if heard > before and item.begin - last > PAUSE:
            yield from run("", last + PAUSE, session.finish)
            session.reset()
            before = heard
        last = item.end
        yield from run(item.word, item.end, partial(session.feed, item.word))
    yield from run("", last, session.finish)


class _Clock:
    """When what is computed is there: one thing after another, from when it can begin."""

    def __init__(self, computing: float | None) -> None:
        self.computing = computing
        self.free = 0.0  # ms

    def run(self, at: int, work: Callable[[], list[Event]]) -> Iterator[tuple[Event, int]]:
        """The events of some work that can begin at a time, each with its own."""
        begin = max(float(at), self.free)
        started = time.perf_counter()
        events = work()
        if self.computing is None:  # all that a word leads to is there together
            self.free = begin + 1000 * (time.perf_counter() - started)
            yield from ((event, -int(-self.free // 1)) for event in events)
            return
        self.free = begin
        for event in events:
            if isinstance(event, Write):
                self.free += 1000 * self.computing * len(event.text.split())
            yield event, -int(-self.free // 1)  # rounded up: never too early


def written(stream: Iterable[Heard]) -> list[Shown]:
    """The words a stream has written, one by one."""
    words: list[Shown] = []
    for item in stream:
        if isinstance(item.event, Write):
            texts = item.event.text.split()
            words += [Shown(text, item.time, item.event.delay) for text in texts]
        elif isinstance(item.event, End) and words:
            words[-1] = Shown(words[-1].text, words[-1].time, words[-1].delay, True)
    return words


@dataclass
class _Block:
    """Words that are shown together, from a time on."""

    words: list[Shown]
    start: int

    @property
    def text(self) -> str:
        return _text(self.words)


def lay_out(words: Sequence[Shown], layout: Layout = "blocks") -> list[Cue]:
    """Captions of at most two lines, one after another.

    `blocks`: a caption is shown when it is complete: its sentence is over, it is full, or its
    first word has waited long enough. `words`: it grows by every word at that word's time.
    """
    blocks = _blocks(words)
    if layout == "words":
        blocks = [grown for block in blocks for grown in _grow(block)]
    cues: list[Cue] = []
    for number, block in enumerate(blocks):
        start = max(block.start, cues[-1].end if cues else 0)
        stay = min(LONGEST, max(SHORTEST, 1000 * len(block.text) // READING))
        if number + 1 < len(blocks):
            # a caption makes way for the next, but not before it could be seen
            least = SHORTEST if layout == "blocks" else 1
            stay = max(least, min(stay, blocks[number + 1].start - start))
        cues.append(Cue(start, start + stay, _broken(block.text)))
    return cues


def _blocks(words: Sequence[Shown]) -> list[_Block]:
    blocks: list[_Block] = []
    open_: list[Shown] = []

    def close(at: int) -> None:
        blocks.append(_Block(list(open_), at))
        open_.clear()

    for word in words:
        if open_ and word.time - open_[0].time > WAIT:
            close(max(open_[-1].time, open_[0].time + WAIT))
        elif open_ and max(map(len, _broken(_text([*open_, word])).split("\n"))) > LINE:
            close(word.time)  # only now it is known to be full
        open_.append(word)
        if word.last or ends_sentence(word.text):
            close(word.time)
    if open_:
        close(open_[-1].time)
    return blocks


def _text(words: Sequence[Shown]) -> str:
    return " ".join(word.text for word in words)


def _grow(block: _Block) -> Iterator[_Block]:
    """The block at each time at which a word comes."""
    words = block.words
    for number, word in enumerate(words, 1):
        if number == len(words) or words[number].time > word.time:
            yield _Block(words[:number], word.time)


def _broken(text: str) -> str:
    """Two lines, the first as full as the second, where one would be too long."""
    spaces = [at for at, letter in enumerate(text) if letter == " "]
    if len(text) <= LINE or not spaces:
        return text
    middle = min(spaces, key=lambda at: max(at, len(text) - at - 1))
    return f"{text[:middle]}\n{text[middle + 1 :]}"
