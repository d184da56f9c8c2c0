"""simultan demo: a talk, played at speaking speed and translated live."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simultan.config import Bound
from simultan.streaming.decoding import DEFAULT, Decoding
from simultan.verbs.options import Machine, Model, check_out

if TYPE_CHECKING:
    from simultan.streaming.session import Event

TALK = Path(__file__).parents[1] / "talk.de.txt"


def demo(
    model: Model = "",
    *,
    text: Annotated[Path | None, "Play this text; a short German talk by default."] = None,
    pace: Annotated[
        float, Bound(0), "Speak this many words a second; 0 does not wait.", "<WORDS>"
    ] = 2.5,
    svg: Annotated[Path | None, "Save the picture to this file, too."] = None,
    decoding: Decoding = DEFAULT,
    machine: Machine = Machine(threads=1),
) -> None:
    """Play a short talk at speaking speed, translate it live, and say how far behind it was."""
    from rich.console import Console

    from simultan import display

    if svg is not None:
        check_out(svg, text or TALK, "--svg")
    translator = machine.load(model)
    language = translator.codec.target_language
    session = translator.session(decoding)
    tally = display.Tally()
    events: list[tuple[str, Event]] = []
    descriptor = os.open(text or TALK, os.O_RDONLY)
    try:
        words = display.read_words(descriptor, pace)
        words = display.join_lines(words, translator.codec.source_language)
        stream = display.translate(session, words, tally)
        display.draw(display.kept(stream, events), Console(), language=language)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        os.close(descriptor)
    if tally.sentences:
        typer.echo(
            f"average lagging (AL) {tally.average_lagging():.1f} words;"
            f" {tally.words} words written at {tally.words / tally.seconds:.0f} words a second"
            " of computing"
        )
    if svg is not None:
        console = Console(record=True, file=io.StringIO(), width=100)
        display.draw(events, console, language=language)
        picture = console.export_svg(title="simultan demo")
        # no fonts from elsewhere: the picture is the same without a network
        svg.write_text(re.sub(r"@font-face {.*?}\s*", "", picture, flags=re.S), encoding="utf-8")
