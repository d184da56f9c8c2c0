"""simultan evaluate: a test set is translated, logged and scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from simultan.config import Bound
from simultan.evaluation.scoring import Scoring
from simultan.streaming.decoding import DEFAULT, Decoding
from simultan.verbs.options import Machine, show_progress
from simultan.verbs.score import explain, show_scores

if TYPE_CHECKING:
    from simultan.evaluation.curve import Point
    from simultan.evaluation.stream import Document, Speech
    from simultan.streaming.translator import Translator


def evaluate(
    model: Annotated[str, "Folder or name of the model."],
    *,
    source: Annotated[Path, "Translate this text, a sentence to a line."],
    reference: Annotated[Path, "Compare with this translation, line by line."],
    out: Annotated[Path, "Write instances.log and scores.json to this folder.", "<FOLDER>"],
    rows: Annotated[
        int | None,
        Bound(1),
        "Translate this many sentences side by side; 32 by default, and 2,048 where a GPU"
        " translates whole sentences.",
    ] = None,
    at: Annotated[
        tuple[str, ...],
        "Measure a whole curve: lag=3,4,5 or threshold=0.2,0.5,0.8 or mass=0.5,0.9 or k=1,3,5"
        " or agents with a space between them. Every point gets a folder of its own.",
        "<POINTS>",
    ] = (),
    latency: Annotated[
        str, "Draw the curve of --at over these metrics, such as LAAL or AL,DAL.", "<METRICS>"
    ] = "AL",
    save_lags: Annotated[
        bool, "Keep in the model's folder which threshold means which lag, as --at measured it."
    ] = False,
    stream: Annotated[
        bool,
        "Play whole documents as one stream each, and put what was written back into sentences.",
    ] = False,
    document: Annotated[
        int,
        Bound(0),
        "With --stream, take this many lines as a document; 0 takes all. An empty line ends one.",
        "<LINES>",
    ] = 0,
    speech: Annotated[
        Literal["written", "unpunctuated", "lower-case", "recognised"],
        "With --stream, speak the text as it is written, or without punctuation, capitals or both.",
    ] = "written",
    decoding: Decoding = DEFAULT,
    machine: Machine = Machine(),
    scoring: Scoring = Scoring(),
) -> None:
    """Translate a test set as it would be spoken, log it and score the log.

    \b
    simultan evaluate de-en --source a.de --reference a.en --out scores
    simultan evaluate de-en ... --out curve --at lag=3,4,5,8
    simultan evaluate de-en ... --out talks --stream --speech recognised
    """
    from simultan import memory
    from simultan.data.sources import read_lines
    from simultan.evaluation.curve import evaluate_curve, measure_lags, parse_points
    from simultan.evaluation.evaluate import evaluate as run
    from simultan.evaluation.stream import documents_of

    if at and replace(decoding, beam=None) != DEFAULT:
        raise ValueError(f"--at and {decoding}: choose one of them")
    if save_lags and not at:
        raise ValueError("--save-lags needs points: --at threshold=0.1,0.3,0.5,0.7,0.9")
    if save_lags and not Path(model).is_dir():
        raise ValueError(f"--save-lags: {model} is not a folder of yours; `simultan export` it")
    points = [decoding]
    if at:
        points = [replace(point, beam=point.beam or decoding.beam) for point in parse_points(at)]
    sources, references = list(read_lines(source)), list(read_lines(reference))
    if out.is_file():
        raise ValueError(f"--out {out}: this is a file; name a folder")
    out.mkdir(parents=True, exist_ok=True)  # before the work is done that it is for
    if stream:
        if at:
            raise ValueError("--stream and --at: choose one of them")
        documents = documents_of(sources, references, document)
        play_documents(machine.load(model), documents, decoding, out, speech, rows or 32, scoring)
        return
    translator = machine.load(model)
    rows = rows or translator.default_rows(decoding)
    memory.keep()
    with show_progress("translating", len(points) * len(sources)) as progress:
        texts = translator, sources, references, out
        if not at:
            scores = run(*texts, decoding, scoring, rows=rows, progress=progress)
        else:
            axes = latency.split(",")
            measured = evaluate_curve(
                *texts, points, scoring, latencies=axes, rows=rows, progress=progress
            )
    if not at:
        show_scores(scores)
        return
    show_points(measured)
    explain()
    typer.echo(f"{out}/curve.tsv, curve.png, curve.svg, curve.pdf")
    if save_lags:
        measure_lags(translator, measured).save(model)
        typer.echo(f"{model}/lags.json: --lag can be used with this model")


def play_documents(
    translator: Translator,
    documents: Sequence[Document],
    decoding: Decoding,
    out: Path,
    speech: Speech,
    rows: int,
    scoring: Scoring,
) -> None:
    """Documents as streams, and what only streams have."""
    from simultan.evaluation.stream import evaluate_streams

    if scoring.latency_unit != "words":
        raise ValueError("--stream counts delays in words")
    words = sum(len(text.split()) for sources, _ in documents for text in sources)
    with show_progress("listening", words) as progress:
        texts = documents, decoding, out, scoring
        found = evaluate_streams(translator, *texts, speech=speech, rows=rows, progress=progress)
    show_scores(found.scores)
    for name in ("documents", "source_words", "written_words", "longest_silence"):
        typer.echo(f"{name:<26} {getattr(found, name)}")


def show_points(points: Sequence[Point]) -> None:
    """One row for each point."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from simultan.evaluation.curve import render_table

    header, *rows = (line.split("\t") for line in render_table(points).splitlines())
    table = Table(box=box.SIMPLE)
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if number else "left", no_wrap=not number)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
