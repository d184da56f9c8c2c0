"""Text that a teacher translates, line by line: for distillation and for back-translation.

What is being written can be stopped at any time: the same call continues from the lines that are
there. Memory does not grow with the text.
"""

from __future__ import annotations

import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Protocol, Self

import numpy as np

from simultan.data.ragged import Ragged
from simultan.streaming.decoding import DEFAULT, Decoding
from simultan.streaming.lines import LineWorkers, compress
from simultan.streaming.translator import Translator, limits

PART = 64  # lines for each row between two writes: rows stay busy, and a crash loses little
LIVE = 8  # the same for sessions, which are slow: somebody may be watching
CHUNK = 1024  # lines that a worker gets at once
LONGEST = 512  # source tokens

Progress = Callable[[int, int], None]  # new lines, and their target words


@dataclass
class Distilled:
    """What is in the file."""

    lines: int = 0
    too_long: int = 0  # of those that are new: they were left empty


def distill(
    translator: Translator,
    lines: Iterable[str],
    out: str | Path,
    decoding: Decoding | str = DEFAULT,
    *,
    rows: int | None = None,
    longest: int = LONGEST,
    workers: int = 0,
    progress: Progress | None = None,
) -> Distilled:
    """Write the translation of each line to a file. Complete lines that it already has are kept.

    A name that ends in .gz or .xz is compressed. Lines of more than `longest` source tokens give
    empty lines. `workers` processes do what is to be done for each word where a GPU translates
    whole sentences; a script that asks for them needs `if __name__ == "__main__"`.
    """
    decoding = Decoding.parse(decoding).resolve(translator.model.policy, translator.lags)
    rows = rows or translator.default_rows(decoding)
    result = Distilled()
    with Output(out) as file:
        result.lines = file.lines
        if progress is not None:
            progress(file.lines, 0)
        rest = islice(lines, file.lines, None)
        if translator.generates(decoding):
            parts = _generate(translator, rest, decoding, rows, longest, workers, result, file)
        else:
            parts = _translate(translator, rest, decoding, rows, file.suffix)
        for data, count, words in parts:
            file.write(data)
            result.lines += count
            if progress is not None:
                progress(count, words)
    return result


def translate_lines(
    translator: Translator,
    lines: Iterable[str],
    decoding: Decoding | str = DEFAULT,
    *,
    rows: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[list[str]]:
    """The translations of many lines, in their order, some at a time."""
    rows = rows or translator.default_rows(decoding)
    size = rows * (PART if translator.generates(decoding) else LIVE)
    rest = iter(lines)
    while part := list(islice(rest, size)):
        results = translator.translate(part, decoding, rows=rows, progress=progress)
        yield [result.text for result in results]


def _translate(
    translator: Translator, lines: Iterable[str], decoding: Decoding, rows: int, suffix: str
) -> Iterator[tuple[bytes, int, int]]:
    """Lines of a file, as bytes, their number and their words, by sessions of the model."""
    for part in translate_lines(translator, lines, decoding, rows=rows):
        words = sum(len(line.split()) for line in part)
        text = "".join(line + "\n" for line in part)
        yield compress(text.encode(), suffix), len(part), words


@dataclass
class _Part:
    """Lines that are translated together."""

    lines: list[list[str]]  # in chunks
    encoded: list[Future[Ragged]]
    first: int  # the number of the first line


def _generate(
    translator: Translator,
    lines: Iterable[str],
    decoding: Decoding,
    rows: int,
    longest: int,
    workers: int,
    result: Distilled,
    file: Output,
) -> Iterator[tuple[bytes, int, int]]:
    """The same for models that translate whole sentences.

    Workers encode the part that comes next, and put the last one into words, meanwhile.
    """
    generator = translator.generator(decoding, rows)
    size = max(1, PART * rows // generator.search.rows // CHUNK)
    rest, number = iter(lines), file.lines
    careful = decoding.beam is None
    with LineWorkers(translator.codec, careful, workers) as text:

        def read_part() -> _Part:
            nonlocal number
            some = [list(islice(rest, CHUNK)) for _ in range(size)]
            some = [chunk for chunk in some if chunk]
            part = _Part(some, [text.encode(chunk) for chunk in some], number)
            number += sum(map(len, some))
            return part

        part = read_part()
        pending: list[tuple[Future[tuple[bytes, int]], int]] = []  # and how many lines
        while part.lines:
            sources = Ragged.join(chunk.result() for chunk in part.encoded)
            following = read_part()
            fits = sources.lengths <= longest
            result.too_long += len(sources) - int(fits.sum())
            found = generator.generate(
                sources,
                limits=np.where(fits, limits(sources, careful), 0),
                numbers=np.arange(part.first, part.first + len(sources)),
            ).best()
            yield from _results(pending)
            pending, start = [], 0
            for chunk in part.lines:
                stop = start + len(chunk)
                some = found.part(start, stop), fits[start:stop]
                pending.append((text.decode(chunk, *some, file.suffix), len(chunk)))
                start = stop
            part = following
            if not workers:  # it is done already
                yield from _results(pending)
                pending = []
        yield from _results(pending)


def _results(
    pending: list[tuple[Future[tuple[bytes, int]], int]],
) -> Iterator[tuple[bytes, int, int]]:
    for future, lines in pending:
        data, words = future.result()
        yield data, lines, words


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


class Output:
    """A file of lines to which lines are added; what a killed process left half done is cut off."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.lines = Path(path), 0
        self.suffix = self.path.suffix

    def __enter__(self) -> Self:
        self.file: BinaryIO = open(self.path, "a+b")
        self.file.seek(0)
        kept = self._scan_parts() if self.suffix in (".gz", ".xz") else self._scan_lines()
        self.file.truncate(kept)
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, data: bytes) -> None:
        self.file.write(data)
        self.file.flush()

    def _scan_lines(self) -> int:
        """The size of the complete lines, which are counted."""
        kept = 0
        for line in self.file:
            if not line.endswith(b"\n"):  # the process was killed here
                break
            self.lines, kept = self.lines + 1, kept + len(line)
        return kept

    def _scan_parts(self) -> int:
        """The same of compressed parts, of which each stands alone."""
        kept, data = 0, self.file.read(1 << 20)
        while data:
            part: _Decompressor = (
                zlib.decompressobj(31) if self.suffix == ".gz" else lzma.LZMADecompressor()
            )
            lines = 0
            try:
                while data and not part.eof:
                    lines += part.decompress(data).count(b"\n")
                    data = part.unused_data if part.eof else self.file.read(1 << 20)
            except (zlib.error, lzma.LZMAError) as error:
                if not kept:
                    raise ValueError(
                        f"{self.path}: not a {self.suffix} file ({error}); move it away"
                    ) from error
                return kept
            if not part.eof:  # the process was killed here
                return kept
            self.lines += lines
            data = data or self.file.read(1 << 20)
            kept = self.file.tell() - len(data)
        return kept


def count_workers() -> int:
    """Processes that keep a GPU busy with text, as far as there are cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(0, min(8, (cores or 1) - 1))
