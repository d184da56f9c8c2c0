"""Sequence-level distillation: a teacher's translation of training text, line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from simultan.streaming.decoding import DEFAULT, Decoding
from simultan.streaming.translator import Translator

PART = 64  # lines for each row between two writes: rows stay busy, and a crash loses little


def distill(
    translator: Translator,
    lines: Iterable[str],
    out: str | Path,
    decoding: Decoding | str = DEFAULT,
    *,
    rows: int = 256,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write the translation of each line to a file. Complete lines that it already has are kept.

    Returns the number of lines in the file. `progress` is called with the number of new lines.
    """
    with open(out, "a+b") as file:
        file.seek(0)
        done = kept = 0
        for line in file:
            if not line.endswith(b"\n"):  # the process was killed here
                break
            done, kept = done + 1, kept + len(line)
        file.truncate(kept)
        if progress is not None:
            progress(done)
        rest = islice(lines, done, None)
        for part in translate_lines(translator, rest, decoding, rows=rows, progress=progress):
            file.write("".join(line + "\n" for line in part).encode())
            file.flush()
            done += len(part)
    return done


def translate_lines(
    translator: Translator,
    lines: Iterable[str],
    decoding: Decoding | str = DEFAULT,
    *,
    rows: int,
    progress: Callable[[int], None] | None = None,
) -> Iterator[list[str]]:
    """The translations of many lines, in their order, some at a time."""
    rest = iter(lines)
    while part := list(islice(rest, PART * rows)):
        results = translator.translate(part, decoding, rows=rows, progress=progress)
        yield [result.text for result in results]
