"""simultan distill: training text as a teacher translates it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from simultan.config import Bound
from simultan.streaming.decoding import DEFAULT, Decoding
from simultan.verbs.options import Beam, Machine, show_progress, with_beam


def distill(
    model: Annotated[str, "Folder or name of the teacher."],
    *,
    source: Annotated[Path, "Translate this text (plain, .gz or .xz)."],
    out: Annotated[Path, "Write the translation to this file, line by line."],
    rows: Annotated[int, Bound(1), "Translate this many sentences side by side."] = 256,
    first: Annotated[int, Bound(0), "Stop after this many lines; 0 takes all."] = 0,
    decoding: Decoding = DEFAULT,
    beam: Beam = None,
    machine: Machine = Machine(),
) -> None:
    """Translate training text with a teacher, to train a student on the result.

    Lines that OUT already has are kept: the same command continues where it was stopped.
    """
    from simultan.data.sources import read_lines
    from simultan.streaming.distill import distill as translate

    translator = machine.load(model)
    total = sum(1 for _ in islice(read_lines(source, "replace"), first or None))
    lines = islice(read_lines(source, "replace"), first or None)
    with show_progress("translating", total) as progress:
        written = translate(
            translator, lines, out, with_beam(decoding, beam), rows=rows, progress=progress
        )
    typer.echo(f"{out}: {written:,} lines")
