"""simultan train: a recipe becomes a model."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from simultan.config import Bound
from simultan.verbs.options import Changes

CORE_TIMES = Path("/proc/stat")


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
        threads = max(1, torch.get_num_threads() - round(busy_cores()))
    if threads:
        torch.set_num_threads(threads)


def busy_cores(seconds: float = 0.3) -> float:
    """How many of our cores other programs use just now.

    The load of the last minute, which serves where there is no better, counts what has just
    ended, such as the command before this one.
    """
    try:
        ours = os.sched_getaffinity(0)
        before = CORE_TIMES.read_text(encoding="ascii")
        time.sleep(seconds)
        return busy_between(before, CORE_TIMES.read_text(encoding="ascii"), ours)
    except (AttributeError, KeyError, OSError, ValueError):  # not on this system
        return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def busy_between(before: str, after: str, cores: Collection[int]) -> float:
    """Cores' worth of work between two readings of /proc/stat."""
    first, second = _times(before), _times(after)
    busy = 0.0
    for core in cores:
        spent = [b - a for a, b in zip(first[core], second[core], strict=True)]
        total = sum(spent)
        busy += 1 - (spent[3] + spent[4]) / total if total > 0 else 0.0
    return busy


def _times(text: str) -> dict[int, list[int]]:
    """Of each core: user, nice, system, idle, waiting for a disk, interrupts (two), stolen."""
    lines = [line.split() for line in text.splitlines()]
    return {
        int(name[3:]): [int(value) for value in values[:8]]
        for name, *values in filter(None, lines)
        if name.startswith("cpu") and name != "cpu"
    }
