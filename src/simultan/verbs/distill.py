"""simultan distill: text as a teacher translates it, for distillation and back-translation."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from simultan.config import Bound
from simultan.streaming.decoding import DEFAULT, Decoding, Sampling
from simultan.verbs.options import Machine, show_progress


def distill(
    model: Annotated[str, "Folder or name of the teacher."],
    *,
    source: Annotated[Path, "Translate this text (plain, .gz or .xz)."],
    out: Annotated[Path, "Write the translation to this file, line by line (plain, .gz or .xz)."],
    rows: Annotated[
        int | None,
        Bound(1),
        "Translate this many sentences side by side; 2,048 on a GPU and 256 on a CPU by default.",
    ] = None,
    first: Annotated[int, Bound(0), "Stop after this many lines; 0 takes all."] = 0,
    longest: Annotated[
        int, Bound(1), "Leave lines of more source tokens than this empty.", "<TOKENS>"
    ] = 512,
    sample: Annotated[
        bool, "Draw each translation at random, for back-translation. For offline models."
    ] = False,
    temperature: Annotated[
        float, Bound(0, above=True), "With --sample, make likely tokens likelier below 1.", "<T>"
    ] = 1.0,
    top_k: Annotated[
        int,
        Bound(0),
        "With --sample, draw from this many tokens, the likeliest, and their equals; 0 takes all.",
    ] = 0,
    seed: Annotated[int, "With --sample, another number draws other translations."] = 1,
    decoding: Decoding = DEFAULT,
    machine: Machine = Machine(),
) -> None:
    """Translate text with a teacher, to train a student on the result.

    Lines that OUT already has are kept: the same command continues where it was stopped.

    \b
    simultan distill TEACHER --source a.de.xz --out a.en.gz --beam 4
    simultan distill EN-DE --source a.en.xz --out a.de.gz --sample --device cuda
    """
    from simultan.data.sources import read_lines
    from simultan.streaming.distill import count_workers
    from simultan.streaming.distill import distill as translate

    if sample:
        decoding = replace(decoding, sample=Sampling(temperature, top_k, seed))
    if out.exists() and out.samefile(source):
        raise ValueError(f"--out {out}: this is the file to be read; write to another one")
    translator = machine.load(model)
    gpu = machine.device.startswith("cuda")
    total = sum(1 for _ in islice(read_lines(source, "replace"), first or None))
    lines = islice(read_lines(source, "replace"), first or None)
    with show_progress("translating", total) as progress:
        written = translate(
            translator,
            lines,
            out,
            decoding,
            rows=rows or (None if gpu else 256),
            longest=longest,
            workers=count_workers() if gpu else 0,
            progress=progress,
        )
    if written.lines > total and not first:
        raise ValueError(
            f"--out {out}: it has {written.lines:,} lines, {source} has {total:,}: it translates"
            " another text, so write to another file"
        )
    left = f"; {written.too_long:,} too long, left empty" if written.too_long else ""
    typer.echo(f"{out}: {written.lines:,} lines{left}")
