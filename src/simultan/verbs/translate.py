"""simultan translate: words from standard input, translated while they come; or a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from simultan.config import Bound
from simultan.streaming.decoding import DEFAULT, Decoding
from simultan.verbs.options import Machine, Model, check_out, show_progress

if TYPE_CHECKING:
    from simultan.streaming.translator import Translator


def translate(
    model: Model = "",
    *,
    show: Annotated[bool, "Draw source, heads and target side by side."] = False,
    lines: Annotated[
        bool,
        "Take each line as a sentence. By default, full stops and empty lines end a sentence; so"
        " does Enter where words are typed.",
    ] = False,
    pace: Annotated[
        float,
        Bound(0),
        "Read this many words a second; 0 reads them as they come.",
        "<WORDS>",
    ] = 0.0,
    url: Annotated[
        str, "Ask this server instead of a model, such as http://127.0.0.1:8000.", "<URL>"
    ] = "",
    token: Annotated[
        str | None, "Give the server this token.", "$SIMULTAN_TOKEN", "<TOKEN>"
    ] = None,
    in_: Annotated[
        Path | None, "Translate this file instead, a sentence to a line.", "--in"
    ] = None,
    out: Annotated[
        Path | None,
        "Write the translation of --in to this file, line by line. By default, to standard output.",
    ] = None,
    rows: Annotated[
        int | None,
        Bound(1),
        "With --in, translate this many lines side by side; 32 by default, and 2,048 where a GPU"
        " translates whole sentences.",
    ] = None,
    decoding: Decoding = DEFAULT,
    machine: Machine = Machine(threads=1),
) -> None:
    """Translate words from standard input while they come, or a whole file.

    \b
    echo "Guten Morgen, meine Damen und Herren." | simultan translate
    simultan translate --in a.de --out a.en --rows 32
    """
    from rich.console import Console

    from simultan import display

    if in_ is not None or out is not None:
        if in_ is None:
            raise ValueError("--out is for the translation of a file: --in FILE")
        if url or show:
            raise ValueError("--in and --out go without --url and --show")
        if out is not None:
            check_out(out, in_)
        with _ending_quietly(complete=True):
            translate_file(machine.load(model), in_, out, decoding, rows)
        return
    typed = sys.stdin.isatty() and sys.stdout.isatty()
    if typed and not url:
        typer.echo("loading the model ...", err=True)
    if url and (model or lines):
        raise ValueError("--url asks a server: it goes without a model and without --lines")
    session, languages = None, ("", "")
    if not url:
        session = machine.load(model).session(decoding, segment=not lines)
        languages = session.source_language, session.target_language
    words = display.read_words(sys.stdin.fileno(), pace)
    if typed:
        words = display.prompted(words, sys.stdout)
    elif not lines:
        advice = "" if url else ", and with --lines every line is one"
        words = display.join_lines(words, languages[0], advice)
    if session is None:
        events = display.translate_remotely(url, words, decoding, token, typed)
    else:
        events = display.translate(session, words)
    if typed:
        typer.echo("type, and end a line with Enter; Ctrl-D ends", err=True)
    with _ending_quietly():
        if show:
            display.draw(events, Console(), typed, languages[1])
        else:
            display.write(events, sys.stdout, lines, languages[1])


@contextmanager
def _ending_quietly(complete: bool = False) -> Iterator[None]:
    """Ctrl-C, or a reader that has gone, ends what is written to standard output.

    Ctrl-C ends the line that is being written, unless all lines are `complete`.
    """
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        typer.echo(err=complete)
        sys.exit(130)
    except BrokenPipeError:  # Python must not try to flush once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def translate_file(
    translator: Translator, source: Path, out: Path | None, decoding: Decoding, rows: int | None
) -> None:
    """A file, line by line: their order and empty lines are kept."""
    from simultan.data.sources import read_lines
    from simultan.streaming.distill import translate_lines

    lines = list(read_lines(source))
    place: AbstractContextManager[TextIO]
    place = nullcontext(sys.stdout) if out is None else out.open("w", encoding="utf-8")
    done = 0
    try:
        with place as file, show_progress("translating", len(lines)) as progress:
            for part in translate_lines(translator, lines, decoding, rows=rows, progress=progress):
                file.writelines(f"{line}\n" for line in part)
                file.flush()
                done += len(part)
    except KeyboardInterrupt:
        if out is not None:
            typer.echo(f"simultan: {out} has {done:,} of {len(lines):,} lines", err=True)
        raise
