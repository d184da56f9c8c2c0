"""Pairs of text files (plain, .gz, .xz), read line by line beside each other."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = [
    "Progress",
    "Skips",
    "TextPair",
    "check_count",
    "language_of",
    "open_text",
    "read_lines",
    "read_pairs",
]

_PLACES = 5  # examples kept of each kind of skipped pair
UNDECODABLE = "not valid UTF-8"
MOST_UNDECODABLE = 0.05  # share of pairs
_NAMES = {"txt", "tsv", "src", "tgt", "trg", "ref", "hyp"}  # endings that name no language
Progress = Callable[[str, float], None]  # what is being done, fraction done


@dataclass(frozen=True)
class TextPair:
    """Two files of which line n of one translates line n of the other."""

    source: Path
    target: Path
    weight: float = 1.0  # how often each pair is seen in an epoch; 2.5: twice, half of them thrice
    lines: frozenset[int] = frozenset()  # the line counts that are right; empty: any
    documents: Path | None = None  # a file whose line n names the document of line n
    document_columns: int = 0  # of its tab-separated columns, those that name it; 0: all


@dataclass
class Skips:
    """Pairs that were left out, counted by reason, with the first places of each."""

    strict: bool = False  # raise at the first one instead
    seen: int = 0  # all pairs that were read
    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, path: Path, line: int) -> None:
        if self.strict:
            raise ValueError(f"{path}:{line}: {reason}")
        self.counts[reason] = self.counts.get(reason, 0) + 1
        places = self.places.setdefault(reason, [])
        if len(places) < _PLACES:
            places.append(f"{path.name}:{line}")

    def check_encoding(self) -> None:
        """Refuse text of which so much cannot be read that its encoding must be another one."""
        lost = self.counts.get(UNDECODABLE, 0)
        if lost > MOST_UNDECODABLE * self.seen:
            places = ", ".join(self.places[UNDECODABLE])
            raise ValueError(
                f"{lost:,} of {self.seen:,} pairs are {UNDECODABLE} ({places}, ...): convert the"
                " text (iconv -f LATIN1 -t UTF-8), or say --allow-undecodable to leave them out"
            )


def read_pairs(
    pair: TextPair, skips: Skips, progress: Progress | None = None
) -> Iterator[tuple[int, str, str]]:
    """Line number and both texts of each usable pair; what is wrong is skipped and counted.

    Lines end at a line feed and nowhere else, so that odd separators inside a line cannot
    shift one side against the other.
    """
    number = 0
    with open_text(pair.source) as (source, raw), open_text(pair.target) as (target, _):
        size = os.path.getsize(pair.source)  # of a pipe: 0
        while True:
            try:
                left, right = source.readline(), target.readline()
            except (EOFError, lzma.LZMAError, gzip.BadGzipFile) as error:
                raise ValueError(
                    f"{pair.source} or {pair.target}: damaged after line {number} ({error})"
                ) from error
            if not left or not right:
                break
            number += 1
            skips.seen += 1
            if progress is not None and number % 20_000 == 0:
                progress(f"reading {pair.source.name}", raw.tell() / size if size else 0.0)
            path = pair.source
            try:
                one = left.rstrip(b"\r\n").decode("utf-8")
                path = pair.target
                two = right.rstrip(b"\r\n").decode("utf-8")
            except UnicodeDecodeError:
                skips.add(UNDECODABLE, path, number)
                continue
            if not one or one.isspace():
                skips.add("empty", pair.source, number)
            elif not two or two.isspace():
                skips.add("empty", pair.target, number)
            else:
                yield number, one, two
        rest = _count(source) + bool(left), _count(target) + bool(right)
    if rest != (0, 0):
        raise ValueError(
            f"{pair.source} has {number + rest[0]:,} lines and {pair.target} has"
            f" {number + rest[1]:,}: line n of one must translate line n of the other"
        )
    check_count(pair, number)


def check_count(pair: TextPair, number: int) -> None:
    """Refuse a text of no lines, or of another number than its corpus or its documents have."""
    if number == 0:
        raise ValueError(f"{pair.source}: no lines")
    if pair.documents is not None:
        with open_text(pair.documents) as (stream, _):
            named = _count(stream)
        if named != number:
            raise ValueError(
                f"{pair.documents} has {named:,} lines and {pair.source} has {number:,}:"
                " line n must name the document of line n"
            )
    if pair.lines and number not in pair.lines:
        wanted = " or ".join(f"{n:,}" for n in sorted(pair.lines))
        raise ValueError(
            f"{pair.source}: {number:,} lines where the corpus has {wanted}; to prepare other"
            " text name its files with --source and --target"
        )


def read_lines(path: str | Path, errors: Literal["strict", "replace"] = "strict") -> Iterator[str]:
    """The lines of one text, without their ends; only a line feed ends a line.

    Bytes that are not UTF-8 are an error, or are replaced by a sign for them.
    """
    number = 0
    try:
        with open_text(Path(path)) as (stream, _):
            for line in stream:
                number += 1
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", errors)
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: damaged after line {number} ({error})") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: {UNDECODABLE}") from error


class open_text:
    """A file of bytes, decompressed by its suffix, beside the file on disk (for progress)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> tuple[io.BufferedIOBase, io.BufferedReader]:
        if str(self._path) == "-":
            self._raw = open(sys.stdin.fileno(), "rb", closefd=False)
            return self._raw, self._raw
        if not (self._path.is_file() or self._path.is_fifo()):
            there = self._path.exists()
            raise FileNotFoundError(
                f"{self._path}: {'not a regular file' if there else 'no such file'}"
            )
        self._raw = open(self._path, "rb")
        if self._path.suffix == ".xz":
            return io.BufferedReader(lzma.LZMAFile(self._raw), 1 << 20), self._raw
        if self._path.suffix == ".gz":
            return io.BufferedReader(gzip.GzipFile(fileobj=self._raw), 1 << 20), self._raw
        return self._raw, self._raw

    def __exit__(self, *_: object) -> None:
        self._raw.close()


def _count(stream: io.BufferedIOBase) -> int:
    return sum(1 for _ in stream)


def language_of(path: Path) -> str:
    """train.en.xz -> en."""
    ending = Path(path.name.removesuffix(".xz").removesuffix(".gz")).suffix[1:]
    return ending if 2 <= len(ending) <= 3 and ending.isalpha() and ending not in _NAMES else ""
