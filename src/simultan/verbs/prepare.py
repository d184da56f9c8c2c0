"""simultan prepare: parallel text becomes what training reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from simultan.data import corpus as corpora
from simultan.data.codec import Codec
from simultan.data.named import gather_pairs
from simultan.starter import next_commands

if TYPE_CHECKING:
    from simultan.data.corpus import Prepared


def prepare(
    corpus: Annotated[str, "Named corpus: iwslt15-en-vi or wmt15-de-en."] = "",
    *,
    out: Annotated[Path, "Write this folder.", "<FOLDER>"],
    folders: Annotated[
        tuple[Path, ...],
        "Take the files of the named corpus from this folder; can be repeated. By default, they"
        " are downloaded.",
        "--from",
        "<FOLDER>",
    ] = (),
    source: Annotated[
        tuple[Path, ...],
        "Read training text: a file or a folder, plain, .gz or .xz. A .tsv, a .jsonl and -"
        " (standard input) hold both sides. Can be repeated.",
    ] = (),
    target: Annotated[
        tuple[Path, ...], "Read its translation, line by line; can be repeated."
    ] = (),
    weight: Annotated[
        tuple[float, ...],
        "See the pairs of a text this often in an epoch; give one for each text. 1 by default.",
        "<WEIGHT>",
    ] = (),
    documents: Annotated[
        tuple[str, ...],
        "Read from a file to which document each line belongs; give one for each text, - for none.",
        "<FILE>",
    ] = (),
    document_columns: Annotated[
        int, "Name a document by the first columns of that file; 0 takes all."
    ] = 0,
    tag: Annotated[
        tuple[str, ...],
        "Put this word before every source of a text, such as back-translated ones; give one for"
        " each text, - for none.",
        "<WORD>",
    ] = (),
    valid_source: Annotated[Path | None, "Read validation text."] = None,
    valid_target: Annotated[Path | None, "Read its translation."] = None,
    test_source: Annotated[Path | None, "Read test text."] = None,
    test_target: Annotated[Path | None, "Read its translation."] = None,
    like: Annotated[
        Path | None, "Take the vocabularies of this model or prepared folder.", "<FOLDER>"
    ] = None,
    cache: Annotated[
        Path | None, "Keep downloads in this folder; ~/.cache/simultan by default.", "<FOLDER>"
    ] = None,
    suggest: Annotated[bool, "End with the commands that train on the result."] = True,
    **options: Annotated[Any, corpora.prepare],
) -> None:
    """Turn parallel text into vocabularies and memory-mapped shards.

    \b
    simultan prepare iwslt15-en-vi --pipeline words --out DIR
    simultan prepare --source a.de --target a.en --out DIR
    simultan prepare --source pairs.tsv --valid-source valid.tsv --out DIR
    """
    columns = TextColumn("{task.description:<32}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("starting", total=1.0)

        def show(what: str, done: float) -> None:
            bar.update(task, description=what, completed=done, total=1.0 if done else None)

        valid, test = (valid_source, valid_target), (test_source, test_target)
        parts = gather_pairs(
            corpus, folders, source, target, valid, test, weight, cache, show,
            documents, document_columns, tag,
        )  # fmt: skip
        codec = None if like is None else Codec.load(like)
        prepared = corpora.prepare(out, *parts, codec=codec, progress=show, **options)
    _show(prepared)
    if suggest:
        words = prepared.settings["min_count"] is not None  # no subwords
        typer.echo("next, with the recipes for a corpus of this size:")
        for command in next_commands(out, prepared.pairs["train"], words):
            typer.echo(f"  {command}")


def _show(prepared: Prepared) -> None:
    """What was written and what was left out."""
    console, table = Console(), Table("split", "pairs", "source tokens", "target tokens", "unknown")
    for split, pairs in prepared.pairs.items():
        tokens, unknown = prepared.tokens[split], prepared.unknown[split]
        shares = " / ".join(f"{share:.1%}" for share in unknown)
        table.add_row(split, f"{pairs:,}", f"{tokens[0]:,}", f"{tokens[1]:,}", shares)
    console.print(table)
    sizes = " and ".join(f"{size:,}" for size in prepared.vocabulary)
    joint = prepared.settings["joint"]
    console.print(
        f"vocabulary: {prepared.vocabulary[0]:,} pieces, joint"
        if joint
        else f"vocabularies: {sizes} pieces"
    )
    speech = prepared.speech
    if speech["runs"]:
        console.print(f"joined: {speech['pairs_in_runs']:,} pairs into {speech['runs']:,}")
    if speech["spelled"]:
        console.print(f"with numbers as they are spoken: {speech['spelled']:,} sources")
    changed = [speech[kind] for kind in ("lower_cased", "unpunctuated", "both")]
    if any(changed):
        few, bare, both = changed
        console.print(
            f"like speech recognition: {few:,} sources in lower case, {bare:,} without"
            f" punctuation, {both:,} both"
        )
    for reason, skip in prepared.skipped.items():
        places = ", ".join(skip["first"])
        console.print(f"left out: {skip['count']:,} pairs, {reason} ({places}, ...)")
    for note in prepared.notes:
        console.print(f"note: {note}", style="yellow")
