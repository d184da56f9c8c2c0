"""simultan distill: training text as a teacher translates it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from simultan.config import Bound
from simultan.verbs.options import DecodeSentences, Machine

__all__ = ["distill"]


def distill(
    model: Annotated[str, "Folder or name of the teacher."],
    *,
    source: Annotated[Path, "Translate this text (plain, .gz or .xz).", "<FILE>"],
    out: Annotated[Path, "Write the translation to this file, line by line.", "<FILE>"],
    rows: Annotated[int, Bound(1), "Translate this many sentences side by side.", "<N>"] = 256,
    first: Annotated[int, Bound(0), "Stop after this many lines; 0 takes all.", "<N>"] = 0,
    decode: DecodeSentences = DecodeSentences(),
    machine: Machine = Machine(),
) -> None:
    """Translate training text with a teacher, to train a student on the result.

    Lines that OUT already has are kept: the same command continues where it was stopped.
    """
    from rich.progress import Progress

    from simultan.data.sources import read_lines
    from simultan.streaming.distill import distill as translate

    translator = machine.load(model)
    total = sum(1 for _ in islice(read_lines(source, "replace"), first or None))
    lines = islice(read_lines(source, "replace"), first or None)
    with Progress(transient=True) as bar:
        task = bar.add_task("translating", total=total)

        def advance(count: int) -> None:
            bar.advance(task, count)

        written = translate(translator, lines, out, decode.decoding(), rows=rows, progress=advance)
    typer.echo(f"{out}: {written:,} lines")
