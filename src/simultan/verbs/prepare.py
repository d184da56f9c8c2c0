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
from simultan.data.named import Texts, gather_pairs
from simultan.starter import next_commands

if TYPE_CHECKING:
    from simultan.data.corpus import Prepared


def prepare(
    corpus: Annotated[str, "Named corpus: iwslt15-en-vi or wmt15-de-en."] = "",
    *,
    out: Annotated[Path, "Write this folder.", "<FOLDER>"],
    texts: Texts = Texts(),
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

        parts = gather_pairs(corpus, texts, cache, show)
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
