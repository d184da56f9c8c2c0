"""A live translation in the terminal: words from standard input, plain text or a picture out."""

from __future__ import annotations

import codecs
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from itertools import chain
from typing import TextIO, TypeVar

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from simultan.captions import Heard
from simultan.data.languages import ends_sentence
from simultan.data.words import gap, join_words
from simultan.streaming.decoding import Decoding
from simultan.streaming.session import End, Event, Read, Session, Write

Item = TypeVar("Item")
LINE = "\n"
WRAPPED = 8  # lines without a full stop: more than one sentence, or a very long one
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")  # of layers
NARROW = 60  # columns; with fewer there is no room for heads

NOT_UTF8 = (
    "simultan: the text is not UTF-8, so words will be wrong;"
    " convert it, for example with iconv -f WINDOWS-1252 -t UTF-8"
)
JOINED = "simultan: lines without a full stop are read as one text; an empty line ends a sentence"


def read_words(descriptor: int, pace: float = 0.0) -> Iterator[str]:
    """Words and line ends as they come, or at most `pace` words a second.

    Text that is not UTF-8 is read all the same, after one warning.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest, more, warned, first = "", True, False, True
    while more:
        data = os.read(descriptor, 65_536)
        if first and data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):  # Windows says so
            decoder = codecs.getincrementaldecoder("utf-16")("replace")
        more, first = bool(data), False
        text = decoder.decode(data, final=not more)
        if "\N{REPLACEMENT CHARACTER}" in text and not warned:
            warned = True
            print(NOT_UTF8, file=sys.stderr)
        *lines, rest = (rest + text).split(LINE)
        if more:  # the last word may be incomplete: keep what follows the last space
            head, space, tail = rest.rpartition(" ")
            lines, rest = [*lines, head + space], tail
        else:
            lines, rest = [*lines, rest], ""
        for number, line in enumerate(lines):
            for word in line.split():
                yield word
                if pace:
                    time.sleep(1 / pace)
            if number < len(lines) - 1:
                yield LINE


def join_lines(words: Iterable[str], language: str = "", advice: str = "") -> Iterator[str]:
    """The words of wrapped text: only an empty line is still the end of a line, and of a sentence.

    Two lines before an empty one, in which no sentence ends, may have been meant as two sentences;
    so may many lines, while a wrapped sentence ends sooner. So it is said, once, that they were
    joined, with advice if there is any.
    """
    joined, told = 0, False
    empty, ended = True, False  # the line so far; whether a sentence ends in it
    for word in chain(words, [LINE, ""]):  # at last: the text is over
        if word not in (LINE, ""):
            empty, ended = False, ended or ends_sentence(word, language)
            yield word
            continue
        if not empty:
            joined = 0 if ended else joined + 1
        if joined >= (2 if empty else WRAPPED) and not told:
            told = True
            print(JOINED + advice, file=sys.stderr)
        if empty and word:
            joined = 0
            yield LINE
        empty, ended = True, False


class Tally:
    """How a stream went: the delays of its sentences, and the seconds spent on computing."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.sentences: list[tuple[int, list[int]]] = []  # source words, delay of each word
        self._before = 0
        self._delays: list[int] = []

    def run(self, work: Callable[[], list[Event]]) -> list[Event]:
        """The events of some work, timed and counted."""
        started = time.perf_counter()
        events = work()
        self.seconds += time.perf_counter() - started
        for event in events:
            if isinstance(event, Write):
                self._delays += [event.delay - self._before] * len(event.text.split())
            elif isinstance(event, End):
                if self._delays:
                    self.sentences.append((event.words - self._before, self._delays))
                self._before, self._delays = event.words, []
        return events

    def restart(self) -> None:
        """The stream counts its words from the beginning."""
        self._before, self._delays = 0, []

    @property
    def words(self) -> int:
        """Words written, in sentences that are complete."""
        return sum(len(delays) for _, delays in self.sentences)

    def average_lagging(self) -> float:
        """In words, the mean over sentences; the written text takes the reference's place."""
        import torch

        from simultan import latency

        lags = [
            latency.average_lagging(*(torch.tensor(x) for x in (delays, count, len(delays))))
            for count, delays in self.sentences
        ]
        return float(torch.stack(lags).mean())


def translate(
    session: Session, words: Iterable[str], tally: Tally | None = None
) -> Iterator[tuple[str, Event]]:
    """Each word with each event it leads to. The end of a line ends a sentence, End(0): words are
    counted anew from there."""
    tally = tally or Tally()
    word = LINE
    for word in words:
        if word == LINE:
            yield from _finish(session, tally)
            session.reset()
            continue
        for number, event in enumerate(tally.run(partial(session.feed, word))):
            yield (word if number == 0 else ""), event
    if word != LINE:  # the last line has no end
        yield from _finish(session, tally)


def _finish(session: Session, tally: Tally) -> Iterator[tuple[str, Event]]:
    for event in [*tally.run(session.finish), End(0)]:
        yield "", event
    tally.restart()


def prompted(words: Iterable[str], out: TextIO) -> Iterator[str]:
    """The same words, typed by hand: each line begins with a prompt."""
    out.write("> ")
    out.flush()
    for word in words:
        yield word
        if word == LINE:  # what it led to has been written
            out.write("\n> ")
            out.flush()
    out.write("\n")


def translate_remotely(
    url: str, words: Iterable[str], decoding: Decoding, token: str | None, typed: bool = False
) -> Iterator[tuple[str, Event]]:
    """The same from a server, whose messages come at any time; where words are `typed`, before the
    next line."""
    from simultan import client

    for item in client.iterate(url, words, decoding=decoding, token=token, in_turn=typed):
        match item:
            case str():
                yield item.strip(), Read()
            case client.Write(text, delay, heads):
                yield "", Write(text, delay, heads)
            case client.End(count):
                yield "", End(count)


def timer(speed: float) -> Callable[[int], None]:
    """A function that waits until a millisecond of a recording; its first call starts it."""
    start: list[float] = []

    def wait(until: int) -> None:
        start.append(time.monotonic())
        time.sleep(max(0.0, start[0] + until / 1000 / speed - time.monotonic()))

    return wait


def kept(items: Iterable[Item], place: list[Item]) -> Iterator[Item]:
    """The same items, which are also appended to a list."""
    for item in items:
        place.append(item)
        yield item


def play(stream: Iterable[Heard], console: Console, language: str = "") -> Iterator[Heard]:
    """The same stream, drawn while it runs; it is over when this returns, by Ctrl-C too."""
    passed: list[Heard] = []
    events = ((item.word, item.event) for item in kept(stream, passed))
    with suppress(KeyboardInterrupt):
        draw(events, console, language=language)
    return iter(passed)


def write(
    events: Iterable[tuple[str, Event]], out: TextIO, lines: bool = False, language: str = ""
) -> None:
    """The translation as text, a sentence to a line, each word as soon as it is there.

    With `lines` every end is a line's: an empty one stays empty. `language` is the target's.
    """
    before = ""  # what was written last in this line
    for _, event in events:
        if isinstance(event, Write):
            text = join_words(event.text.split(), language)
            out.write(gap(before, text, language) + text)
            before = text or before
        elif isinstance(event, End) and (lines or before):
            out.write("\n")
            before = ""
        out.flush()
    if before:
        out.write("\n")
        out.flush()


class Picture:
    """A sentence as it is heard, a word to a line, with the heads and what was written at it."""

    def __init__(self, height: int = 0, language: str = "", narrow: bool = False) -> None:
        self.height = height  # how many lines fit; 0: all
        self.narrow = narrow  # no room for heads
        self.language = language  # of what is written
        self.stops: list[list[list[int]]] = []  # [L, H] words at which the head has stopped
        self.before, self.source = 0, list[str]()
        self.begin(0)

    def begin(self, before: int) -> None:
        """A new sentence, after so many words of the stream; it has those heard since. 0: words
        are counted anew."""
        self.source = self.source[before - self.before :] if before else []
        self.before = before
        self.target: dict[int, str] = {}  # what was written at each word
        self.stops = [[[] for _ in layer] for layer in self.stops]
        self.newest = 0

    def add(self, word: str, event: Event) -> None:
        if word:
            self.source.append(word)
        if isinstance(event, Write):
            self.newest = event.delay - self.before
            self.stops = self.stops or [[[] for _ in layer] for layer in event.heads]
            for stops, heads in zip(self.stops, event.heads, strict=True):
                for stop, at in zip(stops, heads, strict=True):
                    stop.append(at - self.before)
            written = [self.target.get(self.newest, ""), *event.text.split()]
            self.target[self.newest] = join_words(written, self.language)

    def __rich__(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("", justify="right", style="dim")
        table.add_column("heard", min_width=12, max_width=30, no_wrap=True)
        if not self.narrow:
            table.add_column("heads", no_wrap=True)
        table.add_column("written", overflow="fold")
        first = max(0, len(self.source) - self.height) if self.height else 0
        for number, word in enumerate(self.source[first:], first + 1):
            style = "bold" if number == self.newest else ""
            written = Text(self.target.get(number, ""), style=style)
            marks = [] if self.narrow else [self._marks(number)]
            table.add_row(str(self.before + number), Text(word), *marks, written)
        return table

    def _marks(self, number: int) -> Text:
        """The heads at one word: ● stands there, ○ has stopped there, · has passed it."""
        text = Text()
        for layer, heads in enumerate(self.stops):
            marks = "".join(
                " " if not stops or stops[-1] < number else
                "●" if stops[-1] == number else "○" if number in stops else "·"
                for stops in heads
            )  # fmt: skip
            text.append(f"{marks} ", style=COLOURS[layer % len(COLOURS)])
        return text


def draw(
    events: Iterable[tuple[str, Event]], console: Console, typed: bool = False, language: str = ""
) -> None:
    """The picture of the current sentence, below the sentences that are complete.

    Where the words are `typed` into the same terminal, each picture is drawn when it is complete.
    """
    moves = console.is_terminal and not typed
    height = max(4, console.height - 4) if moves else 0
    picture = Picture(height, language, console.width < NARROW)
    live = Live(picture, console=console, auto_refresh=False) if moves else None
    over: End | None = None
    cursor = ExitStack()
    if live is not None:  # which hides it, also where Ctrl-C comes before the first picture
        cursor.callback(console.show_cursor)
    with cursor, live or nullcontext():
        for word, event in events:
            if over is not None and (word or isinstance(event, Write)):  # of the next sentence
                _record(picture, console, moves, over)
                picture.begin(over.words)
                over = None
            picture.add(word, event)
            if isinstance(event, End) and typed:
                _record(picture, console, moves, event)
                picture.begin(event.words)
            elif isinstance(event, End):
                over = event
            if live is not None and (word or isinstance(event, Write)):
                live.refresh()
    if live is None:
        _record(picture, console, moves, End(0))


def _record(picture: Picture, console: Console, drawn: bool, end: End) -> None:
    """The sentence that is over; words that were heard before it ended may be the next one's."""
    source = picture.source[: end.words - picture.before] if end.words else picture.source
    if not (source or picture.target):
        return
    if not drawn:
        console.print(picture)
    console.print(Text(" ".join(source), style="dim"))
    target = join_words(picture.target.values(), picture.language)
    console.print(Text(target, style="bold"), "\n")
