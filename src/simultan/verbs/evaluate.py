"""simultan evaluate: a test set is translated, logged and scored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simultan.config import Bound
from simultan.verbs.options import DecodeSentences, Machine, Scoring
from simultan.verbs.score import show_scores

if TYPE_CHECKING:
    from simultan.evaluation.curve import Point

__all__ = ["evaluate"]


def evaluate(
    model: Annotated[str, "Folder or name of the model."],
    *,
    source: Annotated[Path, "Translate this text, a sentence to a line.", "<FILE>"],
    reference: Annotated[Path, "Compare with this translation, line by line.", "<FILE>"],
    out: Annotated[Path, "Write instances.log and scores.json to this folder.", "<FOLDER>"],
    rows: Annotated[int, Bound(1), "Translate this many sentences side by side.", "<N>"] = 32,
    at: Annotated[
        tuple[str, ...],
        "Measure a whole curve: lag=3,4,5 or threshold=0.2,0.5,0.8 or k=1,3,5 or agents with a"
        " space between them. Every point gets a folder of its own.",
        "<POINTS>",
    ] = (),
    latency: Annotated[
        str, "Draw the curve of --at over these metrics: AL, LAAL, DAL, AP or ATD.", "<METRICS>"
    ] = "AL",
    save_lags: Annotated[
        bool, "Keep in the model's folder which threshold means which lag, as --at measured it."
    ] = False,
    decode: DecodeSentences = DecodeSentences(),
    machine: Machine = Machine(),
    scoring: Scoring = Scoring(),
) -> None:
    """Translate a test set as it would be spoken, log it and score the log.

    \b
    simultan evaluate de-en --source a.de --reference a.en --out scores
    simultan evaluate de-en ... --out curve --at lag=3,4,5,8
    """
    from rich.progress import Progress

    from simultan.data.sources import read_lines
    from simultan.evaluation.curve import evaluate_curve, measure_lags, parse_points
    from simultan.evaluation.evaluate import evaluate as run
    from simultan.streaming.decoding import DEFAULT

    decoding = decode.decoding()
    if at and decoding != DEFAULT:
        raise ValueError(f"--at and {decoding}: choose one of them")
    if save_lags and not at:
        raise ValueError("--save-lags needs points: --at threshold=0.1,0.3,0.5,0.7,0.9")
    if save_lags and not Path(model).is_dir():
        raise ValueError(f"--save-lags: {model} is not a folder of yours; `simultan export` it")
    points = parse_points(at) if at else [decoding]
    sources, references = list(read_lines(source)), list(read_lines(reference))
    translator = machine.load(model)
    with Progress(transient=True) as bar:
        task = bar.add_task("translating", total=len(points) * len(sources))
        texts = translator, sources, references, out
        options = {"rows": rows, "progress": lambda done: bar.advance(task, done), **vars(scoring)}
        if not at:
            scores = run(*texts, decoding, **options)
        else:
            measured = evaluate_curve(*texts, points, latencies=latency.split(","), **options)
    if not at:
        show_scores(scores)
        return
    show_points(measured)
    typer.echo(f"{out}/curve.tsv, curve.png, curve.svg, curve.pdf")
    if save_lags:
        measure_lags(translator, measured).save(model)
        typer.echo(f"{model}/lags.json: --lag can be used with this model")


def show_points(points: Sequence[Point]) -> None:
    """One row for each point."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from simultan.evaluation.curve import render_table

    header, *rows = (line.split("\t") for line in render_table(points).splitlines())
    table = Table(box=box.SIMPLE)
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
