"""simultan export: a trained model becomes a folder to ship."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from simultan import boxed
from simultan.config import Bound


def export(
    model: Annotated[str, "Folder of the model, such as RUN/final, or of a run for --average."],
    out: Annotated[Path, "Folder to write."],
    *,
    weights: Annotated[
        Literal["float32", "float16", "int8"], "Store the weights so; they load as float32."
    ] = "float16",
    average: Annotated[
        int, Bound(0), "Average this many last checkpoints of the run MODEL; 0 takes a model."
    ] = 0,
    offline: Annotated[
        bool,
        "Leave out the weights that select: a model for whole sentences, and for agents.",
    ] = False,
    form: Annotated[
        Literal["simultan", "ctranslate2"],
        "Write it for this program. CTranslate2 translates whole sentences.",
        "--format",
    ] = "simultan",
) -> None:
    """Write a model to ship: small weights, configuration, vocabularies and lags."""
    from simultan import checkpoint

    if form == "ctranslate2":
        from simultan import ct2

        if average:
            raise ValueError("--average is not for --format ctranslate2: export twice")
        size = ct2.export(boxed.resolve(model), out, weights)
        typer.echo(f"{out}: {size / 2**20:.1f} MiB, for CTranslate2")
        return
    folders = [boxed.resolve(model)]
    if average:
        folders = sorted((folders[0] / "checkpoints").glob("[0-9]*"))[-average:]
        if len(folders) < average:
            raise ValueError(f"{model} has {len(folders)} checkpoints, not {average}")
    size = checkpoint.export(folders, out, weights, offline)
    typer.echo(f"{out}: {size / 2**20:.1f} MiB")
