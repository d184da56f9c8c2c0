"""Caption files: SubRip (.srt) and WebVTT (.vtt), read strictly and written plainly.

What is wrong with a file is said with its name and line. The libraries at hand (srt, webvtt-py)
mend or pass over what they cannot read and do not say where it stood, so none is used.
"""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Format = Literal["srt", "vtt"]
ARROW = "-->"
_TIME = re.compile(r"(?:(\d{1,4}):)?([0-5]\d):([0-5]\d)[.,](\d{3})", re.ASCII)
_HEADER = re.compile(r"WEBVTT([ \t]|$)")
_ASIDE = re.compile(r"(NOTE|STYLE|REGION)([ \t]|$)")
# tags of WebVTT (and what SubRip borrowed from HTML), inner times, and SubRip's {\an8}
_TAGS = re.compile(r"</?[A-Za-z][^<>]*>|</?>|<[\d:.]+>|\{\\[^{}]*\}")
_INNER = re.compile(r"<([\d:.]+)>")
_CLOCK = re.compile(r"\d:\d\d")


class CaptionError(ValueError):
    """A caption file that cannot be read: the message begins with file and line."""


@dataclass(frozen=True)
class Cue:
    """A caption: plain text, from one millisecond to another."""

    start: int
    end: int
    text: str  # lines are kept
    begins: tuple[int | None, ...] = ()  # when each word begins, where the file says so


def format_of(path: Path) -> Format:
    """By the file's name."""
    suffix = path.suffix.lower()
    if suffix not in (".srt", ".vtt"):
        raise ValueError(f"{path}: a caption file's name ends in .srt or .vtt")
    return "srt" if suffix == ".srt" else "vtt"


def read(path: str | Path) -> list[Cue]:
    """The captions of a file that have text, in the order in which they begin."""
    path = Path(path)
    kind = format_of(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path}: no such file") from error
    return parse(_decode(data, path), kind, str(path))


def _decode(data: bytes, path: Path) -> str:
    """UTF-8; or UTF-16, as some programs of Windows write it, if it says so at its beginning."""
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        try:
            return data.decode("utf-16")
        except UnicodeDecodeError as error:
            raise CaptionError(f"{path}:1: not UTF-16, though it begins like it") from error
    wide = b"\0" in data  # no text in UTF-8 has it
    try:
        if not wide:
            return data.decode("utf-8-sig")
        line = 1
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
    likely = "UTF-16LE" if wide else "WINDOWS-1252"
    raise CaptionError(
        f"{path}:{line}: not UTF-8; convert it, for example with iconv -f {likely} -t UTF-8"
    )


def parse(text: str, kind: Format, name: str = "captions") -> list[Cue]:
    """The captions in a text; `name` is what errors call it."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    first = 0
    if kind == "vtt":
        if not _HEADER.match(lines[0]):
            raise CaptionError(f"{name}:1: a WebVTT file begins with the word WEBVTT")
        first = next((n for n, line in enumerate(lines) if not line.strip()), len(lines))
    cues = []
    for number, block in _blocks(lines, first, kind):
        if kind == "vtt" and _ASIDE.match(block[0]):
            continue
        cue = _cue(block, number, kind, name)
        if cue.text:
            cues.append(cue)
    if not cues:
        raise CaptionError(f"{name}:{len(lines)}: the file ends without a caption")
    return sorted(cues, key=lambda cue: cue.start)


def _blocks(lines: Sequence[str], first: int, kind: Format) -> Iterator[tuple[int, list[str]]]:
    """Lines between empty ones, with the number of the first.

    In WebVTT only an empty line ends a caption: one of spaces belongs to it. In SubRip an empty
    line may stand inside a caption: what begins with neither a number nor a time belongs to it.
    """
    block: list[str] = []
    start = first
    for number, line in enumerate([*lines[first:], ""], first + 1):
        if line.strip() if kind == "srt" or not block else line:
            start = start if block else number
            block.append(line)
        elif block:
            following = [text for text in lines[number : number + 2] if text.strip()]
            if kind == "srt" and ARROW in "".join(block[:2]) and following:
                here = following[0].strip()
                timed = any(ARROW in text or _CLOCK.search(text) for text in following)
                if not timed and not here.isdecimal():
                    continue
            yield start, block
            block = []


def _cue(block: list[str], number: int, kind: Format, name: str) -> Cue:
    """One block: a number or name, if there is one, the times, the text."""
    at = next((n for n, line in enumerate(block[:2]) if ARROW in line), None)
    if at is None:
        raise CaptionError(
            f"{name}:{number}: a caption's times are missing (00:00:01.000 {ARROW} 00:00:02.500);"
            f" here stands {block[0].strip()[:40]!r}"
        )
    if at == 1 and kind == "srt" and not block[0].strip().isdecimal():
        raise CaptionError(
            f"{name}:{number}: a caption begins with its number;"
            f" here stands {block[0].strip()[:40]!r}"
        )
    place = f"{name}:{number + at}"
    left, _, right = block[at].partition(ARROW)
    # what follows the second time are settings: where and how the caption is shown
    start, end = (_time(part, place) for part in (left.strip(), (right.split() or [""])[0]))
    if end < start:
        raise CaptionError(f"{place}: the caption ends before it begins")
    text: list[str] = []
    begins: list[int | None] = []
    for line in block[at + 1 :]:
        words, times = _words(line, kind)
        if words:
            text.append(" ".join(words))
            begins += times
    known = any(time is not None and start <= time <= end for time in begins)
    return Cue(start, end, "\n".join(text), tuple(begins) if known else ())


def _time(text: str, place: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise CaptionError(f"{place}: {text[:40]!r} is no time; write it as 00:00:01.000")
    return _milliseconds(found)


def _milliseconds(found: re.Match[str]) -> int:
    hours, minutes, seconds, thousandths = (int(part or 0) for part in found.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + thousandths


def _words(line: str, kind: Format) -> tuple[list[str], list[int | None]]:
    """The words of a line, and when they begin where a time stands before them."""
    words: list[str] = []
    begins: list[int | None] = []
    time: int | None = None
    inside = False  # a word may continue after a tag
    for number, part in enumerate(_INNER.split(line) if kind == "vtt" else [line]):
        if number % 2:  # a time
            found = _TIME.fullmatch(part)
            time = None if found is None else _milliseconds(found)
            continue
        text = _TAGS.sub("", part)
        for piece in re.findall(r"\s+|\S+", html.unescape(text) if kind == "vtt" else text):
            if piece.isspace():
                inside = False
            elif inside:
                words[-1] += piece
            else:
                words.append(piece)
                begins.append(time)
                time, inside = None, True
    return words, begins


def render(cues: Iterable[Cue], kind: Format, note: str = "") -> str:
    """Captions as a file's text; only WebVTT has room for a note."""
    parts = []
    if kind == "vtt":
        parts.append("WEBVTT\n")
        if note:
            parts.append(f"NOTE {html.escape(note, quote=False)}\n")
    for number, cue in enumerate(cues, 1):
        times = f"{_stamp(cue.start, kind)} {ARROW} {_stamp(cue.end, kind)}"
        if kind == "vtt":
            parts.append(f"{times}\n{html.escape(cue.text, quote=False)}\n")
        else:
            parts.append(f"{number}\n{times}\n{cue.text}\n")
    return "\n".join(parts)


def _stamp(time: int, kind: Format) -> str:
    seconds, thousandths = divmod(time, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    point = "," if kind == "srt" else "."
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{thousandths:03}"
