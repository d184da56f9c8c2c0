"""simultan evaluate: a test set is translated, logged and scored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from simultan.config import Bound
from simultan.verbs.options import DecodeSentences, Machine, Scoring
from simultan.verbs.score import show_scores

__all__ = ["evaluate"]


def evaluate(
    model: Annotated[str, "Folder or name of the model."],
    *,
    source: Annotated[Path, "Translate this text, a sentence to a line.", "<FILE>"],
    reference: Annotated[Path, "Compare with this translation, line by line.", "<FILE>"],
    out: Annotated[Path, "Write instances.log and scores.json to this folder.", "<FOLDER>"],
    rows: Annotated[int, Bound(1), "Translate this many sentences side by side.", "<N>"] = 32,
    decode: DecodeSentences = DecodeSentences(),
    machine: Machine = Machine(),
    scoring: Scoring = Scoring(),
) -> None:
    """Translate a test set as it would be spoken, log it and score the log."""
    from rich.progress import Progress

    from simultan.data.sources import read_lines
    from simultan.evaluation.evaluate import evaluate as run

    sources, references = list(read_lines(source)), list(read_lines(reference))
    translator = machine.load(model)
    with Progress(transient=True) as bar:
        task = bar.add_task("translating", total=len(sources))
        scores = run(
            translator,
            sources,
            references,
            out,
            decode.decoding(),
            rows=rows,
            progress=lambda done: bar.advance(task, done),
            **vars(scoring),
        )
    show_scores(scores)
