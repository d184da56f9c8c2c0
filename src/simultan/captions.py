"""Captions as a live stream: words in their own time in, captions in real time out.

The words of a caption share its time by their letters, between the times that the file gives for
some of them; a word counts as spoken when it ends. A
written word is shown when the source words it needed are spoken and it has been computed:

    shown(i) = max(spoken(read(i)), free(i)) + computing(i)

where free(i) is when the translator is done with what came before. `layout.py` makes captions of
them, in which nothing can be read any earlier.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from simultan.cues import Cue
from simultan.data.text import normalise
from simultan.layout import Shown
from simultan.streaming.session import End, Event, Session, Write

PAUSE = 2000  # ms of silence that end a sentence
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


def speak(cues: Sequence[Cue]) -> list[Spoken]:
    """The words of captions; one that runs into the next ends where that begins."""
    spoken: list[Spoken] = []
    starts = sorted(cue.start for cue in cues)
    for cue in _unrolled(cues):
        following = bisect_right(starts, cue.start)
        limit = starts[following] if following < len(starts) else cue.end
        end = min(cue.end, limit)
        words = cue.text.split()
        earliest = spoken[-1].end if spoken else 0  # captions that begin together take turns
        for first, last, begin, finish in _stretches(cue, len(words), end):
            letters = sum(len(word) + 1 for word in words[first:last])
            passed = 0
            for word in words[first:last]:
                start = begin + (finish - begin) * passed // letters
                passed += len(word) + 1
                stop = begin + (finish - begin) * passed // letters
                if clean := normalise(word):
                    spoken.append(Spoken(clean, max(earliest, start), max(earliest, stop)))
    return spoken


def _stretches(cue: Cue, count: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Words from one to another, and the time they share: between two times of the file."""
    marks = [(0, cue.start)]
    for number, begin in enumerate(cue.begins):
        if begin is not None and number and marks[-1][1] <= begin <= end:
            marks.append((number, begin))
    for (first, start), (last, finish) in pairwise([*marks, (count, end)]):
        yield first, last, start, finish


def _unrolled(cues: Sequence[Cue]) -> Iterator[Cue]:
    """Captions in time, without the lines that roll up: said before, shown again.

    If a caption begins where the last one ended, and repeats its last line above a new one or
    flashes by, that line is said for the second time.
    """
    before = Cue(0, 0, "")
    for cue in sorted(cues, key=lambda cue: cue.start):
        lines, shown = cue.text.split("\n"), before.text.split("\n")
        touches = cue.start - before.end <= FLASH
        if touches and (len(lines) > 1 or cue.end - cue.start <= FLASH):
            known = next((n for n in (2, 1) if lines[:n] == shown[-n:]), 0)
            words = sum(len(line.split()) for line in lines[:known])
            yield Cue(cue.start, cue.end, "\n".join(lines[known:]), cue.begins[words:])
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
    before = last = 0  # words of the streams that a pause has ended; when the last word ended
    free = 0.0  # ms: one thing is computed after another

    def run(word: str, at: int, work: Callable[[], list[Event]]) -> Iterator[Heard]:
        nonlocal free
        if wait is not None:
            wait(at)
        free = max(free, at)
        started = time.perf_counter()
        events = work()
        if computing is None:  # all that a word leads to is there together
            free += 1000 * (time.perf_counter() - started)
        for number, event in enumerate(events):
            if isinstance(event, Write):
                free += 1000 * (computing or 0.0) * len(event.text.split())
                heads = [[head + before for head in layer] for layer in event.heads]
                event = Write(event.text, event.delay + before, heads)
            elif isinstance(event, End):
                event = End(event.words + before)
            yield Heard(word if number == 0 else "", event, math.ceil(free))  # never too early

    for heard, item in enumerate(spoken):
        if heard > before and item.begin - last > PAUSE:
            yield from run("", last + PAUSE, session.finish)
            session.reset()
            before = heard
        last = item.end
        yield from run(item.word, item.end, partial(session.feed, item.word))
    yield from run("", last, session.finish)


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
