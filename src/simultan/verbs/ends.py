"""simultan ends: a model learns to hear where sentences end without full stops."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simultan import boxed
from simultan.config import Bound
from simultan.verbs.options import show_progress


def ends(
    model: Annotated[str, "Folder of the model; ends.safetensors is written into it."],
    text: Annotated[
        tuple[Path, ...], "Punctuated source text, a sentence to a line (plain, .gz, .xz)."
    ],
    *,
    without: Annotated[
        tuple[Path, ...],
        "Leave out lines that stand in this text, too: one to test with.",
        "<FILE>",
    ] = (),
    updates: Annotated[int, Bound(1), "Train for this many updates.", "<N>"] = 4000,
    seed: Annotated[int, "Seed of the random numbers.", "<N>"] = 1,
) -> None:
    """Teach a model to hear where sentences end without full stops.

    A recogniser's text has none. A small network beside the model learns from your text where they
    would stand; from then on each session of the model ends its segments there.
    """
    from simultan.checkpoint import ENDS
    from simultan.data.codec import Codec
    from simultan.data.sources import read_lines
    from simultan.data.speech import as_recognised
    from simultan.streaming.ends import save_ends
    from simultan.train.ends import measure_ends, train_ends

    folder = boxed.resolve(model)
    codec = Codec.load(folder)
    known = {as_recognised(line) for path in without for line in read_lines(path, "replace")}
    texts = []
    for path in text:
        lines = [line.strip() for line in read_lines(path, "replace") if line.strip()]
        texts.append([line for line in lines if as_recognised(line) not in known])
        if len(texts[-1]) < 2:
            raise ValueError(f"{path}: at least two lines are needed, one sentence to a line")
    with show_progress("training", updates) as progress:
        network = train_ends(texts, codec, updates, seed=seed, progress=lambda *_: progress(1))
    save_ends(network, folder)
    typer.echo(f"{folder / ENDS}: {sum(map(len, texts)):,} lines")
    for path in without:
        lines = [line.strip() for line in read_lines(path, "replace") if line.strip()]
        scores = measure_ends(network, [lines], codec)
        typer.echo(
            f"{path.name} without case and punctuation: {scores.recall:.0%} of the ends are found,"
            f" {scores.precision:.0%} of those found are ends"
        )
