"""simultan translate: words from standard input, translated while they come."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from simultan.config import Bound
from simultan.verbs.options import Decode, Machine, Model

__all__ = ["translate"]


def translate(
    model: Model = "",
    *,
    show: Annotated[bool, "Draw source, heads and target side by side."] = False,
    lines: Annotated[
        bool, "Take each line as a sentence. By default, full stops end a sentence."
    ] = False,
    pace: Annotated[
        float,
        Bound(0),
        "Read this many words a second; 0 reads them as they come.",
        "<WORDS>",
    ] = 0.0,
    url: Annotated[
        str, "Ask this server instead of a model, such as ws://127.0.0.1:8000/ws.", "<URL>"
    ] = "",
    token: Annotated[
        str | None, "Give the server this token.", "$SIMULTAN_TOKEN", "<TOKEN>"
    ] = None,
    decode: Decode = Decode(),
    machine: Machine = Machine(threads=1),
) -> None:
    """Translate words from standard input while they come.

    \b
    echo "Guten Morgen, meine Damen und Herren." | simultan translate
    """
    from rich.console import Console

    from simultan import display

    words = display.read_words(0, pace)
    decoding = decode.decoding()
    if url:
        if model or lines:
            raise ValueError("--url asks a server: it goes without a model and without --lines")
        events = display.translate_remotely(url, words, decoding, token)
    else:
        session = machine.load(model).session(decoding, segment=not lines)
        events = display.translate(session, words, lines)
    try:
        if show:
            display.draw(events, Console())
        else:
            display.write(events, sys.stdout)
    except KeyboardInterrupt:
        typer.echo()
        sys.exit(130)
    except BrokenPipeError:  # the reader has gone; Python must not try to flush once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
