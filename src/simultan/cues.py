"""Caption files: SubRip (.srt) and WebVTT (.vtt), read strictly and written plainly.

What is wrong with a file is said with its name and line. The libraries at hand (srt, webvtt-py)
mend or pass over what they cannot read and do not say where it stood, so none is used.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["CaptionError", "Cue", "Format", "format_of", "parse", "read", "render"]

Format = Literal["srt", "vtt"]
ARROW = "-->"
_TIME = re.compile(r"(?:(\d{1,4}):)?([0-5]\d):([0-5]\d)[.,](\d{3})", re.ASCII)
_HEADER = re.compile(r"WEBVTT([ \t]|$)")
_ASIDE = re.compile(r"(NOTE|STYLE|REGION)([ \t]|$)")
# tags of WebVTT (and what SubRip borrowed from HTML), inner times, and SubRip's {\an8}
_TAGS = re.compile(r"</?[A-Za-z][^<>]*>|</?>|<[\d:.]+>|\{\\[^{}]*\}")


class CaptionError(ValueError):
    """A caption file that cannot be read: the message begins with file and line."""


@dataclass(frozen=True)
class Cue:
    """A caption: plain text, from one millisecond to another."""

    start: int
    end: int
    text: str  # lines are kept


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
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise CaptionError(
            f"{path}:{line}: not UTF-8; convert it, for example with iconv -f WINDOWS-1252 -t UTF-8"
        ) from error
    return parse(text, kind, str(path))


def parse(text: str, kind: Format, name: str = "captions") -> list[Cue]:
    """The captions in a text; `name` is what errors call it."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    first = 0
    if kind == "vtt":
        if not _HEADER.match(lines[0]):
            raise CaptionError(f"{name}:1: a WebVTT file begins with the word WEBVTT")
        first = next((n for n, line in enumerate(lines) if not line.strip()), len(lines))
    cues = []
    for number, block in _blocks(lines, first):
        if kind == "vtt" and _ASIDE.match(block[0]):
            continue
        cue = _cue(block, number, kind, name)
        if cue.text:
            cues.append(cue)
    if not cues:
        raise CaptionError(f"{name}:{len(lines)}: the file ends without a caption")
    return sorted(cues, key=lambda cue: cue.start)


def _blocks(lines: Sequence[str], first: int) -> Iterator[tuple[int, list[str]]]:
    """Lines between blank ones, with the number of the first."""
    block: list[str] = []
    for number, line in enumerate([*lines[first:], ""], first + 1):
        if line.strip():
            block.append(line)
        elif block:
            yield number - len(block), block
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
    text = "\n".join(" ".join(_plain(line, kind).split()) for line in block[at + 1 :])
    return Cue(start, end, text.strip())


def _time(text: str, place: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise CaptionError(f"{place}: {text[:40]!r} is no time; write it as 00:00:01.000")
    hours, minutes, seconds, thousandths = (int(part or 0) for part in found.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + thousandths


def _plain(line: str, kind: Format) -> str:
    line = _TAGS.sub("", line)
    return html.unescape(line) if kind == "vtt" else line


def render(cues: Iterable[Cue], kind: Format, note: str = "") -> str:
    """Captions as a file's text; only WebVTT has room for a note."""
    parts = []
    if kind == "vtt":
        parts.append("WEBVTT\n")
        if note:
            parts.append(f"NOTE {_escaped(note)}\n")
    for number, cue in enumerate(cues, 1):
        times = f"{_stamp(cue.start, kind)} {ARROW} {_stamp(cue.end, kind)}"
        if kind == "vtt":
            parts.append(f"{times}\n{_escaped(cue.text)}\n")
        else:
            parts.append(f"{number}\n{times}\n{cue.text}\n")
    return "\n".join(parts)


def _stamp(time: int, kind: Format) -> str:
    seconds, thousandths = divmod(time, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    point = "," if kind == "srt" else "."
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{thousandths:03}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
