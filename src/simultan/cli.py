"""The command line: each verb opens what it needs only when it is called."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from simultan.evaluation.evaluate import Scores

LatencyUnit = Literal["words", "subwords"]
QualityName = Literal["bleu", "bleu_lowercased", "chrf"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train, measure and run simultaneous machine translation.",
)


@app.callback()
def _root() -> None:
    """Keeps the verbs verbs even while there is only one of them."""


@app.command("train")
def train_verb(
    recipe: Annotated[Path, typer.Argument(help="A recipe, such as recipes/toy/mma-il.toml.")],
    out: Annotated[Path, typer.Option(help="The run's folder; an unfinished run there goes on.")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change the recipe: section.key=value.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove a run in that folder first.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda; empty: a GPU if there is one.")] = "",
) -> None:
    """Train a model. Under torchrun all processes train it together."""
    from simultan import config
    from simultan.train.loop import fit

    outcome = fit(config.load(recipe, changes or ()), out, overwrite, device=device or None)
    if not outcome.finished:
        typer.echo(f"stopped at update {outcome.update}; the same command goes on", err=True)
        raise typer.Exit(143)
    typer.echo(outcome.folder)


@app.command("toy")
def toy_verb(
    folder: Annotated[Path, typer.Argument(help="Where train, valid and test go.")],
    pairs: Annotated[int, typer.Option(min=1, help="Training pairs.")] = 3000,
    seed: Annotated[int, typer.Option(help="Of the sentences drawn.")] = 1,
) -> None:
    """Write a toy language pair (.en, .fr) that a small model learns in seconds."""
    from simultan.data.toy import write_toy

    write_toy(folder, pairs, seed)


@app.command("evaluate")
def evaluate_verb(
    model: Annotated[str, typer.Argument(help="A model's folder or name.")],
    source: Annotated[Path, typer.Option(help="Source text, a sentence to a line.")],
    reference: Annotated[Path, typer.Option(help="Its translation, line by line.")],
    out: Annotated[Path, typer.Option(help="Folder for instances.log and scores.json.")],
    rows: Annotated[int, typer.Option(min=1, help="Sentences translated side by side.")] = 32,
    threshold: Annotated[float, typer.Option(help="A head stops where p is above it.")] = 0.5,
    tokenized: Annotated[bool, typer.Option(help="BLEU of text that is in tokens.")] = False,
    latency_unit: Annotated[LatencyUnit, typer.Option(help="What delays count.")] = "words",
    words_per_second: Annotated[float, typer.Option(help="Speaking rate of al_ca.")] = 2.5,
    system: Annotated[str, typer.Option(help="The system's name in figures.")] = "",
) -> None:
    """Translate a test set as it would be spoken; log it and score it."""
    from rich.progress import Progress

    import simultan
    from simultan.evaluation.evaluate import evaluate
    from simultan.evaluation.instances import read_lines

    sources, references = read_lines(source), read_lines(reference)
    translator = simultan.load(model)
    with Progress(transient=True) as bar:
        task = bar.add_task("translating", total=len(sources))
        scores = evaluate(
            translator,
            sources,
            references,
            out,
            rows=rows,
            threshold=threshold,
            tokenized=tokenized,
            latency_unit=latency_unit,
            words_per_second=words_per_second,
            system=system,
            progress=lambda done: bar.advance(task, done),
        )
    _show_scores(scores)


@app.command("score")
def score_verb(
    log: Annotated[Path, typer.Argument(help="An instances.log, or the folder it lies in.")],
    source: Annotated[Path | None, typer.Option(help="Source text, if not in the log.")] = None,
    reference: Annotated[Path | None, typer.Option(help="References, if not in the log.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the scores to this file.")] = None,
    tokenized: Annotated[bool, typer.Option(help="BLEU of text that is in tokens.")] = False,
    latency_unit: Annotated[LatencyUnit, typer.Option(help="What delays count.")] = "words",
    words_per_second: Annotated[float, typer.Option(help="Speaking rate of al_ca.")] = 2.5,
    system: Annotated[str, typer.Option(help="The system's name in figures.")] = "",
) -> None:
    """Score a log of SimulEval's format, ours or another's."""
    from simultan.evaluation.evaluate import score, write_scores
    from simultan.evaluation.instances import read_lines, read_log, with_texts

    instances = with_texts(
        read_log(log),
        None if source is None else read_lines(source),
        None if reference is None else read_lines(reference),
    )
    scores = score(
        instances,
        tokenized=tokenized,
        latency_unit=latency_unit,
        words_per_second=words_per_second,
        system=system,
    )
    if out is not None:
        write_scores(out, scores)
    _show_scores(scores)


@app.command("plot")
def plot_verb(
    folders: Annotated[list[Path], typer.Argument(help="Runs, or folders of a system's runs.")],
    out: Annotated[Path, typer.Option(help="The figure's name, without .png or .svg.")],
    quality: Annotated[QualityName, typer.Option(help="The upward axis.")] = "bleu",
    label: Annotated[list[str] | None, typer.Option(help="A name for each folder.")] = None,
    sentence: Annotated[
        int | None, typer.Option(help="Draw the read/write path of the sentence of this index.")
    ] = None,
) -> None:
    """Draw quality against latency, or the path of one sentence with every head's position."""
    from simultan.evaluation.figures import draw_path, draw_tradeoff, find_runs
    from simultan.evaluation.instances import read_log

    if sentence is None:
        files = draw_tradeoff(find_runs(folders, label or ()), out, quality)
    else:
        if len(folders) > 1:
            raise ValueError("--sentence draws one sentence of one run: give one folder")
        found = [i for i in read_log(folders[0]) if i.index == sentence]
        if not found:
            raise ValueError(f"{folders[0]} has no sentence with index {sentence}")
        files = draw_path(found[0], out)
    for file in files:
        typer.echo(file)


def _show_scores(scores: Scores) -> None:
    """One line to a score; what the log does not say is not shown."""
    for field in dataclasses.fields(scores):
        value = getattr(scores, field.name)
        if value not in (None, ""):
            shown = f"{value:.3f}" if isinstance(value, float) else value
            typer.echo(f"{field.name:<26} {shown}")


def main() -> None:
    """Run a verb; bad input ends in one line that says what to do, not in a traceback."""
    try:
        app()
    except (ValueError, OSError) as error:
        typer.echo(f"simultan: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
