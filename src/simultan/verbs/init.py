"""simultan init: a folder for a model of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simultan.starter import Size, lay_out


def init(
    folder: Annotated[Path, "Folder to write."],
    *,
    source: Annotated[str, "Translate from this language.", "<CODE>"] = "de",
    target: Annotated[str, "Translate into this language.", "<CODE>"] = "en",
    size: Annotated[Size, "Take the recipes for this machine."] = "laptop",
) -> None:
    """Lay out a folder for your own text: data, recipes, Makefile.

    \b
    simultan init my-model --source fr --target en
    """
    for path in lay_out(folder, source, target, size):
        typer.echo(path)
    typer.echo(f"next: put your text into {folder / 'data'}, then: make -C {folder}")
