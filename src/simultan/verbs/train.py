"""simultan train: a recipe becomes a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from simultan.config import Bound
from simultan.verbs.options import Changes


def train(
    recipe: Annotated[Path, "Recipe to train, such as recipes/toy/mma-il.toml."],
    *,
    out: Annotated[Path, "Folder for the run. An unfinished run there is continued.", "<FOLDER>"],
    changes: Changes = (),
    overwrite: Annotated[bool, "Remove a run in that folder first."] = False,
    device: Annotated[
        str, "Train on cpu or cuda. By default, on a GPU if there is one.", "<DEVICE>"
    ] = "",
    threads: Annotated[
        int, Bound(0), "Use this many CPU threads; 0 takes as many as there are idle cores."
    ] = 0,
    minutes: Annotated[
        float,
        Bound(0),
        "End within this time: the learning rate falls early enough. 0 sets no limit.",
        "<MINUTES>",
    ] = 0.0,
    compiled: Annotated[
        Path | None, "Keep compiled code in this file, for runs on other machines of the kind."
    ] = None,
) -> None:
    """Train a model from a recipe. Under torchrun, all processes train it together."""
    from simultan import config
    from simultan.train.loop import fit

    set_threads(threads)
    settings = config.load(recipe, changes)
    outcome = fit(
        settings, out, overwrite, device=device or None, minutes=minutes, compiled=compiled
    )
    if not outcome.finished:
        typer.echo(f"stopped at update {outcome.update}; the same command continues", err=True)
        raise typer.Exit(143)
    if os.environ.get("RANK", "0") == "0":  # torchrun's other processes have nothing to add
        typer.echo(outcome.folder)


def set_threads(threads: int) -> None:
    """So many, or one for each idle core.

    Threads wait for each other after every operation: one that has to share its core with another
    program holds all of them up. Who sets OMP_NUM_THREADS has chosen; torchrun does it, too.
    """
    import torch

    if not threads and "OMP_NUM_THREADS" not in os.environ:
        busy = round(os.getloadavg()[0]) if hasattr(os, "getloadavg") else 0
        threads = max(1, torch.get_num_threads() - busy)
    if threads:
        torch.set_num_threads(threads)
