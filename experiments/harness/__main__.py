"""python -m experiments.harness PLAN: runs a plan, or a part of it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from experiments.harness import plan as plans
from experiments.harness.experiment import Experiment, Options
from experiments.harness.plan import PlannedRun
from experiments.harness.record import revision
from simultan.config import ConfigError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.harness", description=__doc__)
    parser.add_argument("experiment", help="a folder of experiments/, or a plan file")
    parser.add_argument("--only", default="", help="runs, groups, lists or part1, part2, by commas")
    parser.add_argument("--dry-run", action="store_true", help="list the runs and their updates")
    parser.add_argument("--data", type=Path, help="released files, or prepared corpora")
    parser.add_argument("--out", type=Path, help="checkpoints; default: work/EXPERIMENT")
    parser.add_argument("--results", type=Path, help="default: the plan's folder")
    parser.add_argument("--minutes", type=float, default=0.0, help="everything ends by then")
    parser.add_argument("--train-minutes", type=float, default=0.0, help="training ends by then")
    parser.add_argument("--jobs", type=int, default=0, help="processes that measure; -1: by cores")
    parser.add_argument("--device", default="", help="to train on")
    parser.add_argument("--scale", type=float, default=1.0, help="of all numbers of updates")
    parser.add_argument("--tiny", action="store_true", help="a trial with tiny models")
    parser.add_argument("--redo", action="store_true", help="anew; if cut off, go on without it")
    parser.add_argument("--follow", action="store_true", help="read the plan anew for each run")
    parser.add_argument("--compiled", type=Path, help="folder of compiled code, also of before")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds, for what is being made")
    parser.add_argument("--revision", default="", help="of the code, where git does not know it")
    arguments = parser.parse_args()
    try:
        return _run(arguments)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2


def _run(arguments: argparse.Namespace) -> int:
    file = plans.find_plan(arguments.experiment)
    plan = plans.load(file)
    only = [name for name in arguments.only.split(",") if name]
    runs = plan.select(only)
    if arguments.dry_run:
        for run in runs:
            updates = 0 if run.recipe is None else run.config(scale=arguments.scale).train.updates
            print(f"{run.name:40} {run.group.name:24} {updates:7,} updates")
        return 0
    jobs = max(1, (os.cpu_count() or 2) - 2) if arguments.jobs < 0 else arguments.jobs
    options = Options(
        out=arguments.out or Path("work") / plan.name,
        results=arguments.results or plan.folder,
        data=arguments.data,
        minutes=arguments.minutes,
        train_minutes=arguments.train_minutes,
        tiny=arguments.tiny,
        device=arguments.device,
        jobs=jobs,
        redo=arguments.redo,
        scale=arguments.scale,
        wait=arguments.wait,
        compiled=arguments.compiled,
        revision=arguments.revision or revision(Path(__file__).parent),
        command=f"python -m experiments.harness {plan.name} --only {','.join(only)}".removesuffix(
            " --only "
        ),
    )
    experiment = Experiment(options, lambda line: print(line, flush=True))
    following = _follow(file, only, experiment) if arguments.follow else runs
    summary = experiment.run(plan, following)
    for name in ("done", "skipped", "left", "failed"):
        print(f"{name} {len(getattr(summary, name))}: {' '.join(getattr(summary, name))}")
    return 1 if summary.failed else 0


def _follow(file: Path, only: list[str], experiment: Experiment) -> Iterator[PlannedRun]:
    """The first run that has not had its turn, of the plan as it is by then, until time is over."""
    seen: set[str] = set()
    told = False
    while not experiment.training_is_over():
        try:
            plan = plans.load(file)
            runs = plan.select(only)
        except (ConfigError, OSError) as error:  # it is being written
            experiment.say(str(error))
            time.sleep(1)
            continue
        experiment.plan, experiment.chosen = plan, runs
        waiting = [run for run in runs if run.name not in seen]
        if not waiting:
            if not told and all(future.done() for future in experiment.measuring):
                told = True
                experiment.say("every run has had its turn: waiting for more in the plan")
            time.sleep(0.5)
            continue
        seen.add(waiting[0].name)
        told = False
        yield waiting[0]


if __name__ == "__main__":
    sys.exit(main())
