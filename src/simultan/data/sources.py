"""Text files (plain, .gz, .xz) and pairs of them, read line by line."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

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
    tag: str = ""  # a word before every source: a model learns to tell synthetic text by it


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


class Lines:
    """The lines of a text as bytes: plain, .gz or .xz; the path - is standard input.

    Lines end at a line feed and nowhere else, so that odd separators inside a line cannot shift
    one side against the other.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.number = Path(path), 0  # the number of the last line

    def __enter__(self) -> Self:
        if str(self.path) == "-":
            self._file = open(sys.stdin.fileno(), "rb", closefd=False)
        elif self.path.is_file() or self.path.is_fifo():
            self._file = open(self.path, "rb")
        else:
            what = "not a regular file" if self.path.exists() else "no such file"
            raise FileNotFoundError(f"{self.path}: {what}")
        self._lines: io.BufferedIOBase = self._file
        if self.path.suffix == ".xz":
            self._lines = io.BufferedReader(lzma.LZMAFile(self._file), 1 << 20)
        elif self.path.suffix == ".gz":
            self._lines = io.BufferedReader(gzip.GzipFile(fileobj=self._file), 1 << 20)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[bytes]:
        try:
            for line in self._lines:
                self.number += 1
                yield line
        except (EOFError, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise ValueError(f"{self.path}: damaged after line {self.number} ({error})") from error

    @property
    def fraction(self) -> float:
        """How much of the file has been read; nobody knows it of a pipe."""
        size = os.fstat(self._file.fileno()).st_size
        return self._file.tell() / size if size else 0.0


def read_lines(path: str | Path, errors: Literal["strict", "replace"] = "strict") -> Iterator[str]:
    """The lines of one text, without their ends.

    Bytes that are not UTF-8 are an error, or are replaced by a sign for them.
    """
    with Lines(path) as lines:
        for line in lines:
            try:
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", errors)
            except UnicodeDecodeError as error:
                likely = "UTF-16" if b"\0" in line else "WINDOWS-1252"
                raise ValueError(
                    f"{path}, line {lines.number}: {UNDECODABLE}; convert it, for example with"
                    f" iconv -f {likely} -t UTF-8"
                ) from error


def language_of(path: Path) -> str:
    """train.en.xz -> en."""
    ending = Path(path.name.removesuffix(".xz").removesuffix(".gz")).suffix[1:]
    return ending if 2 <= len(ending) <= 3 and ending.isalpha() and ending not in _NAMES else ""
