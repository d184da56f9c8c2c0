"""simultan captions: captions of a talk become captions in another language, in time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from simultan.config import Bound
from simultan.streaming.decoding import DEFAULT, Decoding
from simultan.verbs.options import Machine, Model, check_out


def captions(
    captions: Annotated[Path, "Captions to translate, a .vtt or .srt file."],
    model: Model = "",
    *,
    out: Annotated[Path | None, "Write this .vtt or .srt file; standard output by default."] = None,
    layout: Annotated[
        Literal["reading", "instant"],
        "Show phrases to be read at ease, or every word as soon as it is there.",
    ] = "reading",
    computing: Annotated[
        float, Bound(0), "Assume this many seconds of computing for each word.", "<SECONDS>"
    ] = 0.02,
    measure: Annotated[bool, "Count the seconds that this machine needs instead."] = False,
    live: Annotated[bool, "Play it in the terminal; --out is written at its end."] = False,
    speed: Annotated[
        float, "Play this many times as fast with --live; 2 is double speed.", "<FACTOR>"
    ] = 1.0,
    decoding: Decoding = DEFAULT,
    machine: Machine = Machine(threads=1),
) -> None:
    """Translate captions as if they were being spoken, each word shown when it could have been.

    \b
    simultan captions talk.de.vtt --out talk.en.vtt
    """
    from rich.console import Console

    from simultan import cues, display
    from simultan.captions import speak, translate, written
    from simultan.layout import close_up, lay_out
    from simultan.layout import measure as readability

    if not speed > 0:
        raise ValueError(f"--speed {speed}: it must be more than 0")
    spoken = speak(cues.read(captions))
    if out is not None:
        check_out(out, captions)
    kind = cues.format_of(captions if out is None else out)
    translator = machine.load(model)
    session = translator.session(decoding)
    wait = display.timer(speed) if live else None
    stream = translate(session, spoken, None if measure or live else computing, wait)
    language = translator.codec.target_language
    if live:
        stream = display.play(stream, Console(), language)
    events = list(stream)
    words = written(events)
    how = "as measured" if measure or live else f"assumed to be {computing} s a word"
    note = f"Each word is shown when it could have been at the earliest; computing {how}."
    laid_out = lay_out(words, layout, language)
    text = cues.render(close_up(laid_out, language), kind, note)
    if out is not None and live and not words:  # Ctrl-C before the first word
        typer.echo(f"simultan: nothing was translated yet, so {out} was not written", err=True)
    elif out is not None:
        out.write_text(text, encoding="utf-8")
    elif not live:
        typer.echo(text, nl=False)
    if words:
        heard = sum(bool(item.word) for item in events)
        lag = sum(word.time - spoken[word.delay - 1].end for word in words) / len(words) / 1000
        typer.echo(
            f"{heard} words heard, {len(words)} written, {lag:.2f} s after"
            f" the word they waited for; computing {how}",
            err=True,
        )
        typer.echo(str(readability(laid_out, words, layout, language)), err=True)
