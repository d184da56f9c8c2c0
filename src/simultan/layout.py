"""Written words as captions: what stands together, from when on, and for how long.

Each word has a time at which it is there, and is never shown before it. How well captions can be
read is measured: letters a second, the shortest, gaps, and how long words wait to be shown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from simultan.cues import Cue
from simultan.data.languages import ends_phrase, ends_sentence
from simultan.data.words import join_words

Layout = Literal["reading", "instant"]
LINE = 42  # letters; a caption has two lines
WAIT = 2000  # ms after which an unfinished caption is shown as it is
SHORTEST, LONGEST = 1000, 7000  # ms a caption stays
RATES = (15, 17, 20)  # letters a second: at ease, while more is waiting, when that is late
LATE = 2000  # ms that words have waited for the caption before
HOLD = 3000  # ms that a caption stays after it could be read, if nothing follows
GAP = 500  # ms: a shorter gap is closed


@dataclass(frozen=True)
class Shown:
    """A written word and when it could be shown, in ms; `last` of its sentence."""

    text: str
    time: int
    delay: int  # source words read, of the whole stream
    last: bool = False


@dataclass(frozen=True)
class Readability:
    """How well captions can be read, and what that costs."""

    captions: int
    letters_per_second: float  # of the caption that has to be read fastest
    shortest: float  # seconds
    gaps: int  # of less than half a second
    delay: float  # mean seconds between when a word could be shown and when it is

    def __str__(self) -> str:
        return (
            f"{self.captions} captions, at most {self.letters_per_second:.1f} letters a second,"
            f" the shortest {self.shortest:.1f} s, {self.gaps} gaps under half a second;"
            f" a word waits {self.delay:.2f} s for its caption"
        )


def lay_out(words: Sequence[Shown], layout: Layout = "reading", language: str = "") -> list[Cue]:
    """Captions of at most two lines of 42 letters, one after another.

    `reading`: whole phrases that stay until they have been read. `instant`: every word at its
    time; a line grows, and moves up when the next one begins. `language` is that of the words.
    """
    return _phrases(words, language) if layout == "reading" else _rolling(words, language)[0]


def close_up(cues: Iterable[Cue], language: str) -> list[Cue]:
    """Captions without the spaces that a language does not have.

    Of 42 letters half were spaces then: a line has 21 characters, which are twice as wide.
    """
    return [
        replace(
            cue,
            text="\n".join(join_words(line.split(), language) for line in cue.text.split("\n")),
        )
        for cue in cues
    ]


# --- whole phrases ---


def _phrases(words: Sequence[Shown], language: str) -> list[Cue]:
    texts: list[str] = []
    starts: list[int] = []
    place, free = 0, 0  # the next word to show; when the caption before has been read
    while place < len(words):
        count, start = _next(words, place, free, language)
        text = " ".join(word.text for word in words[place : place + count])
        late = place + count < len(words) and start - words[place].time > LATE
        free = start + _stay(text, RATES[2] if late else RATES[1])
        texts.append(_broken(text, language))
        starts.append(start)
        place += count
    cues = []
    for number, (text, start) in enumerate(zip(texts, starts, strict=True)):
        following = starts[number + 1] if number + 1 < len(starts) else None
        needed = _stay(text, RATES[0])
        end = start + max(needed, min(needed + HOLD, LONGEST))
        if following is not None and following - end < GAP:
            end = following  # it makes way, or closes the gap
        cues.append(Cue(start, end, text))
    return cues


def _stay(text: str, rate: int) -> int:
    """The ms for which a text must stay to be read."""
    return max(SHORTEST, -(-1000 * len(text) // rate))


def _next(words: Sequence[Shown], place: int, free: int, language: str) -> tuple[int, int]:
    """How many words the next caption has, and when it is shown.

    It is complete when its sentence or a clause is over, when it is full, or when its first word
    has waited long enough; what has come until the caption before has been read is taken in, too.
    """
    deadline = max(free, words[place].time + WAIT)
    count, letters, now = 0, 0, max(free, words[place].time)
    for word in words[place:]:
        if word.time > deadline:
            now = max(now, deadline)
            break
        if count and not _fits([*words[place : place + count], word]):
            now = max(now, word.time)  # only now it is known to be full
            break
        count += 1
        now = max(now, word.time)
        letters += len(word.text) + 1
        over = word.last or ends_sentence(word.text, language)
        clause = letters > LINE // 2 and ends_phrase(word.text, "", language) > 1
        if (over or clause) and word.time >= free:
            return count, now
    else:
        return count, now
    return _best_end(words[place : place + count + 1], language), now


def _best_end(words: Sequence[Shown], language: str) -> int:
    """Where to end a caption: not at its last word if a phrase ends a little earlier."""
    count = len(words) - 1  # the last one is what comes next
    letters, best, score = 0, count, 0.0
    for number, (one, two) in enumerate(pairwise(words), 1):
        letters += len(one.text) + 1
        if letters < 15 and number < count and not one.last:
            continue  # too little to be worth a caption
        quality = 3 if one.last else ends_phrase(one.text, two.text, language)
        value = quality + number / count
        if quality and value >= score:
            best, score = number, value
    # better half a line with its phrase than two lines that break off
    return best if best * 3 >= count or score > 3 else count


def _fits(words: Sequence[Shown]) -> bool:
    text = " ".join(word.text for word in words)
    return max(map(len, _broken(text, "").split("\n"))) <= LINE


def _broken(text: str, language: str) -> str:
    """Two lines, both about as long and the first a phrase, where one would be too long."""
    words = text.split(" ")
    if len(text) <= LINE or len(words) == 1:
        return text

    def cost(number: int) -> float:
        first = len(" ".join(words[:number]))
        longest = max(first, len(text) - first - 1)
        good = ends_phrase(words[number - 1], words[number], language)
        return longest + (1000 if longest > LINE else 0) - 6 * good

    best = min(range(1, len(words)), key=cost)
    return " ".join(words[:best]) + "\n" + " ".join(words[best:])


# --- every word at once ---


def _rolling(words: Sequence[Shown], language: str) -> tuple[list[Cue], list[int]]:
    """The captions, and when each word is first on the screen.

    That is at its time, unless so much comes at once that a line would go before it was seen.
    """
    lines: list[str] = []
    unseen = [False, False]  # whether a line has words that no caption has shown yet
    cues: list[Cue] = []
    times: list[int] = []
    free = 0
    for number, word in enumerate(words):
        time = max(word.time, free)
        before = words[number - 1] if number else None
        ended = before is not None and (before.last or ends_sentence(before.text, language))
        if cues and time > max(cues[-1].end, times[-1]):
            lines = []  # the screen is empty
        if lines and len(lines[-1]) + 1 + len(word.text) <= LINE - (LINE // 2 if ended else 0):
            lines[-1] += f" {word.text}"
        else:
            if len(lines) == 2 and unseen[0]:
                free = time + SHORTEST
                cues.append(Cue(time, free, "\n".join(lines)))
                time, unseen = free, [False, False]
            lines = [*lines[-1:], word.text]
            unseen = [unseen[-1], True]
        unseen[-1] = True
        times.append(time)
        following = max(words[number + 1].time, free) if number + 1 < len(words) else None
        if following == time:
            continue
        end = time + min(LONGEST, _stay(" ".join(lines), RATES[0]) + HOLD)
        if following is not None and following - end < GAP:
            end = following
        cues.append(Cue(time, end, "\n".join(lines)))
        unseen = [False, False]
    return cues, times


# --- how it reads ---


@dataclass
class _Line:
    """One line on the screen, from its first word to its last moment."""

    text: str
    times: list[int]  # when each of its words was first there
    end: int


def measure(
    cues: Sequence[Cue], words: Sequence[Shown], layout: Layout, language: str = ""
) -> Readability:
    """How captions that were laid out can be read. A line that grows or moves up is one line."""
    lines: dict[int, _Line] = {}  # by the number of its first word
    known = 0
    seen = _rolling(words, language)[1] if layout == "instant" else []
    for cue in cues:
        texts = cue.text.split("\n")
        count = len(cue.text.split())
        if layout == "instant":
            known = bisect_right(seen, cue.start)
        else:
            known += count
        first = known - count
        for text in texts:
            line = lines.setdefault(first, _Line("", [], 0))
            line.times += [cue.start] * (len(text.split()) - len(line.times))
            line.text, line.end = text, cue.end
            first += len(text.split())
    captions: dict[tuple[int, int], int] = {}  # lines that come and go together: their letters
    for line in lines.values():
        key = line.times[0], line.end
        captions[key] = captions.get(key, 0) + len(line.text) + (key in captions)
    times = [time for line in lines.values() for time in line.times]
    waits = [time - word.time for time, word in zip(times, words, strict=True)]
    gaps = [two.start - one.end for one, two in pairwise(cues)]
    seconds = {key: (key[1] - key[0]) / 1000 for key in captions}
    return Readability(
        len(captions),
        max((captions[key] / max(seconds[key], 0.001) for key in captions), default=0.0),
        min(seconds.values(), default=0.0),
        sum(0 < gap < GAP for gap in gaps),
        sum(waits) / len(waits) / 1000 if waits else 0.0,
    )
