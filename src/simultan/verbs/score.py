"""simultan score: the scores of a log, ours or another system's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simultan.evaluation.scoring import Scoring

if TYPE_CHECKING:
    from simultan.evaluation.scores import Scores


def score(
    log: Annotated[Path, "An instances.log, or the folder that holds it."],
    *,
    source: Annotated[Path | None, "Read the source text, if the log lacks it."] = None,
    reference: Annotated[Path | None, "Read the references, if the log lacks them."] = None,
    out: Annotated[Path | None, "Write the scores to this file."] = None,
    comet: Annotated[
        str,
        "Score with this COMET model as well, if unbabel-comet is installed:"
        " Unbabel/wmt22-comet-da, or a .ckpt file.",
        "<MODEL>",
    ] = "",
    scoring: Scoring = Scoring(),
) -> None:
    """Score a log in SimulEval's format, ours or another system's."""
    from simultan.data.sources import read_lines
    from simultan.evaluation import scores as scorer
    from simultan.evaluation.comet import measure_comet
    from simultan.evaluation.instances import read_log, with_texts

    texts = [None if path is None else list(read_lines(path)) for path in (source, reference)]
    instances = with_texts(read_log(log), *texts)
    scores = scorer.score(instances, scoring)
    if comet:
        scores = replace(scores, comet=measure_comet(instances, comet), comet_model=comet)
    if out is not None:
        scorer.write_scores(out, scores)
    show_scores(scores)


def show_scores(scores: Scores) -> None:
    """One line to a score; what the log does not say is not shown."""
    for name, value in scores.flat().items():
        if value not in (None, ""):
            places = 6 if name.startswith("seconds") else 3  # of a word, on a quick machine
            shown = f"{value:.{places}f}" if isinstance(value, float) else value
            typer.echo(f"{name:<26} {shown}")
    explain()


def explain() -> None:
    """Where a reader finds what the names mean; beside what a program may read."""
    typer.echo("docs/metrics.md says what these names mean", err=True)
