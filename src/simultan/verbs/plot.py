"""simultan plot: figures of measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def plot(
    folders: Annotated[tuple[Path, ...], "Folders of runs, or of systems that hold runs."],
    *,
    out: Annotated[Path, "Write this figure as .png, .svg and .pdf.", "<NAME>"],
    quality: Annotated[
        Literal["bleu", "bleu_lowercased", "chrf"], "Show this score on the upward axis."
    ] = "bleu",
    latency: Annotated[
        str, "Draw a panel for each of these metrics, such as LAAL or ATD.", "<METRICS>"
    ] = "AP,AL,DAL",
    label: Annotated[
        tuple[str, ...], "Name a folder's system; give one for each folder.", "<NAME>"
    ] = (),
    sentence: Annotated[
        int | None, "Draw instead the read/write path of the sentence with this index.", "<INDEX>"
    ] = None,
) -> None:
    """Draw quality against latency, or the path of one sentence with every head's position."""
    from simultan.evaluation.figures import draw_path, draw_tradeoff, find_runs
    from simultan.evaluation.instances import read_log

    if sentence is None:
        files = draw_tradeoff(find_runs(folders, label), out, quality, latency.split(","))
    else:
        if len(folders) > 1:
            raise ValueError("--sentence draws one sentence of one run: give one folder")
        found = [i for i in read_log(folders[0]) if i.index == sentence]
        if not found:
            raise ValueError(f"{folders[0]} has no sentence with index {sentence}")
        files = draw_path(found[0], out)
    for file in files:
        typer.echo(file)
