"""simultan reproduce: an experiment as its plan says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simultan.config import Bound

if TYPE_CHECKING:
    from simultan.reproduce.plan import PlannedRun

__all__ = ["reproduce"]


def reproduce(
    experiment: Annotated[str, "Folder of experiments/, or a plan file."],
    *,
    only: Annotated[str, "Run only these runs or groups, with commas between.", "<NAMES>"] = "",
    data: Annotated[
        Path | None, "Take prepared corpora, or the corpus's files, from here.", "<FOLDER>"
    ] = None,
    out: Annotated[
        Path | None, "Write checkpoints here; work/EXPERIMENT by default.", "<FOLDER>"
    ] = None,
    results: Annotated[
        Path | None, "Write results here; the experiment's folder by default.", "<FOLDER>"
    ] = None,
    minutes: Annotated[
        float, Bound(0), "Begin no run after this time; 0 sets no limit.", "<MINUTES>"
    ] = 0.0,
    train_minutes: Annotated[
        float, Bound(0), "Stop training after this time and only measure.", "<MINUTES>"
    ] = 0.0,
    jobs: Annotated[
        int,
        Bound(-1),
        "Measure in this many processes; 0 measures in this one, -1 uses all cores but 3.",
        "<N>",
    ] = 0,
    device_jobs: Annotated[
        int, Bound(0), "Measure in this many processes on the GPU while it trains.", "<N>"
    ] = 0,
    scale: Annotated[float, "Shorten every run to this share.", "<SHARE>"] = 1.0,
    tiny: Annotated[bool, "Use tiny models, to see whether every run runs."] = False,
    redo: Annotated[bool, "Run again, from the start."] = False,
    dry_run: Annotated[bool, "Only list the runs and the time that they will take."] = False,
    revision: Annotated[str, "Name the revision of the code, if git cannot.", "<NAME>"] = "",
    device: Annotated[
        str, "Train on cpu or cuda. By default, on a GPU if there is one.", "<DEVICE>"
    ] = "",
) -> None:
    """Run an experiment, or a part of it, as its plan says; runs with a result are skipped."""
    from simultan.reproduce import plan as plans
    from simultan.reproduce.experiment import Options
    from simultan.reproduce.experiment import reproduce as run
    from simultan.reproduce.record import revision as revision_of

    plan = plans.load(plans.find_plan(experiment))
    runs = plan.select([name for name in only.split(",") if name])
    if dry_run:
        _show_estimate(plans.estimate(runs, scale))
        measuring = plans.estimate_measuring(runs) / 60
        typer.echo(
            f"(on one H200; beside it, measuring: about {measuring:.0f} minutes of one core)"
        )
        return
    options = Options(
        out=out or Path("work") / plan.name,
        results=results or plan.folder,
        data=data,
        minutes=minutes,
        train_minutes=train_minutes,
        tiny=tiny,
        device=device,
        jobs=max(1, (os.cpu_count() or 1) - 3) if jobs < 0 else jobs,
        device_jobs=device_jobs,
        redo=redo,
        scale=scale,
        revision=revision or revision_of(plan.folder),
        command=f"simultan reproduce {experiment} --only {only}".removesuffix(" --only "),
    )
    summary = run(plan, runs, options, lambda line: print(line, flush=True))
    for name in ("done", "skipped", "left", "failed"):
        found = getattr(summary, name)
        typer.echo(f"{name:<8} {len(found):>3}  {' '.join(found)}")
    if summary.failed:
        raise typer.Exit(1)


def _show_estimate(rows: Sequence[tuple[PlannedRun, int, float]]) -> None:
    """The runs, their updates and seconds, and how they add up."""
    total = 0.0
    for run, updates, seconds in rows:
        total += seconds
        need = f"  after {run.needs}" if run.needs else ""
        typer.echo(f"{run.name:<36} {updates:>7,} {seconds:>7.0f} s {total / 60:>6.1f} min{need}")
