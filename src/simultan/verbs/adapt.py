"""simultan adapt: a model learns your own text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simultan import boxed
from simultan.config import Bound
from simultan.data.formats import match_sides
from simultan.verbs.options import Changes


def adapt(
    model: Annotated[str, "Folder or name of the model that is to learn."],
    *,
    source: Annotated[
        tuple[Path, ...],
        "Learn from this text: a file or a folder, plain, .gz or .xz; a .tsv or .jsonl holds both"
        " sides. Can be repeated.",
    ],
    target: Annotated[tuple[Path, ...], "Its translation, line by line; can be repeated."] = (),
    out: Annotated[Path, "Write the model that has learnt to this folder.", "<FOLDER>"],
    keep: Annotated[
        float,
        Bound(0, 1),
        "Keep this share of the old weights: less gains more on your text and loses more on other.",
        "<SHARE>",
    ] = 0.25,
    epochs: Annotated[float, Bound(0, above=True), "Read the text so many times.", "<N>"] = 5.0,
    minutes: Annotated[
        float, Bound(0), "End within this time: fewer epochs, if need be. 0 sets no limit."
    ] = 0.0,
    changes: Changes = (),
    device: Annotated[
        str, "Train on cpu or cuda. By default, on a GPU if there is one.", "<DEVICE>"
    ] = "",
    threads: Annotated[
        int, Bound(0), "Use this many CPU threads; 0 takes as many as there are idle cores."
    ] = 0,
) -> None:
    """Teach a model your own text: a few thousand pairs, some minutes on a CPU.

    Some pairs are kept apart, and the model is measured on them before and after.

    \b
    simultan adapt de-en --source mine.de --target mine.en --out my-model
    simultan adapt de-en --source memory.tsv --out my-model --keep 0.5
    """
    from simultan.train.adaptation import adapt as learn
    from simultan.verbs.train import set_threads

    set_threads(threads)
    adapted = learn(
        boxed.resolve(model),
        match_sides(source, target),
        out,
        keep=keep,
        epochs=epochs,
        changes=changes,
        minutes=minutes,
        device=device or None,
        say=typer.echo,
    )
    if adapted is None:
        typer.echo("stopped; the same command continues", err=True)
        raise typer.Exit(143)
    typer.echo(f"on {adapted.held_out} pairs that were kept apart:")
    for name, scores in (("before", adapted.before), ("after", adapted.after)):
        lag = scores.latency["al"]
        typer.echo(f"  {name:<8} BLEU {scores.bleu:6.2f}  chrF {scores.chrf:6.2f}  AL {lag:5.2f}")
    typer.echo(out)
