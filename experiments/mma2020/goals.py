"""Tables of this experiment alone: goals, published systems, from scratch or fine-tuned."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.harness import tables
from experiments.harness.plan import Plan
from experiments.harness.tables import Results

LEARNED = ("mma-il", "mma-il-soft", "mma-h")  # of part one
# of part two, greedy
OFFLINE = ("modern-offline", "modern-offline-mixed", "modern-offline-diverse")


def read_published(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text("utf-8"))


def streaming_rows(number_: int, plan: Plan, results: Results) -> list[tables.Row]:
    """The streaming points of a part's own systems, the first seed of each."""
    skipped = ("offline", "-start-")
    runs = [
        run
        for run in plan.runs
        if run.group.part == number_
        and run.seed == 1
        and (number_ == 2 or run.group.name in LEARNED)
        and not any(part in run.name for part in skipped)
    ]
    return tables.rows_of(runs, results)


def best_within(rows: Sequence[tables.Row], bound: float) -> tables.Row | None:
    """Of the points within an AL on both sets, the best on the validation set."""
    inside = [
        row
        for row in rows
        if all(part["al"] is not None and part["al"] <= bound for part in (row.valid, row.test))
    ]
    return max(inside, key=lambda row: row.valid["bleu_lowercased"], default=None)


def best_published(published: dict[str, Any], bound: float) -> float | None:
    """The best point within an AL that its own authors reported."""
    points = [
        bleu
        for system in published["systems"]
        if not system.get("unverified")
        for al, bleu in system["points"]
        if al <= bound
    ]
    return max(points, default=None)


def goals(plan: Plan, results: Results, published: dict[str, Any]) -> str:
    """The distance to each goal of part two."""
    rows = streaming_rows(2, plan, results)
    body = []
    for goal, bound in published["goals"]["points"]:
        row, best = best_within(rows, bound), best_published(published, bound)
        cells = [f"{goal:.1f} at AL <= {bound:.1f}", tables.number(best)]
        body.append([*cells, *_against(row, goal, best)])
    goal = published["goals"]["offline"]
    offline = tables.rows_of([run for run in plan.runs if run.name in OFFLINE], results)
    best_row = max(offline, key=lambda row: row.valid["bleu_lowercased"], default=None)
    body.append([f"{goal:.1f} offline, greedy", "", *_against(best_row, goal, None)])
    header = ["goal", "best published", "run", "measured", "AL", "LAAL", "DAL", "length"]
    return tables.table([*header, "to the goal", "over published"], body)


def _against(row: tables.Row | None, goal: float, best: float | None) -> list[str]:
    if row is None:
        return [tables.NOT_RUN, *[""] * 7]
    test = row.test
    bleu = test["bleu_lowercased"]
    name = tables.show(row)
    latencies = [tables.number(test[key]) for key in ("al", "laal", "dal")]
    ratio = tables.number(test["length_ratio"], 3)
    over = "" if best is None else f"{bleu - best:+.2f}"
    return [name, tables.number(bleu), *latencies, ratio, f"{bleu - goal:+.2f}", over]


def margins(number_: int, plan: Plan, results: Results, published: dict[str, Any]) -> str:
    """Every published point against our best at no more latency."""
    rows = streaming_rows(number_, plan, results)
    body = []
    for system in published["systems"]:
        for al, bleu in system["points"]:
            row = best_within(rows, al)
            name = system["name"] + (" (unverified)" if system.get("unverified") else "")
            cells = [name, tables.number(al), tables.number(bleu)]
            if row is None:
                body.append(
                    [*cells, "no point of ours" if rows else tables.NOT_RUN, "", "", "", ""]
                )
                continue
            ours = row.test["bleu_lowercased"]
            shown = tables.show(row)
            latencies = [tables.number(row.test[key]) for key in ("al", "dal")]
            body.append([*cells, shown, *latencies, tables.number(ours), f"{ours - bleu:+.2f}"])
    header = ["published", "AL", "BLEU", "our run", "AL", "DAL", "BLEU", "difference"]
    return tables.table(header, body)


def scratch(plan: Plan, results: Results) -> str:
    """From scratch against fine-tuned."""
    body = []
    for name in ("mma-il-avg0.02", "mma-il-avg0.04", "scratch-mma-il-avg0.01"):
        if name not in {run.name for run in plan.runs}:
            continue
        rows = tables.rows_of([plan.run(name)], results)
        if not rows:
            body.append([name, tables.NOT_RUN, *[""] * len(tables.columns(plan))])
        for row in rows:
            updates, before = [], row.run.name
            while before in results:
                updates.append(f"{results[before]['updates']:,}")
                before = plan.run(before).init_from
            body.append([name, " + ".join(reversed(updates)), *tables.scores_of(row.test, plan)])
    return tables.table(["run", "updates", *tables.columns(plan)], body)
