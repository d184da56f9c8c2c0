"""The experiment's tables, as Markdown, from results/ and the plan alone."""

from __future__ import annotations

import itertools
import json
import statistics
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.harness.plan import Group, Plan, PlannedRun
from simultan.latency import METRICS

NOT_RUN = "not yet run"
OFFLINE = ("modern-offline", "modern-offline-mixed")  # of part two, greedy
SCORES = {  # column: key of the scores, decimals
    "BLEU": ("bleu", 2),
    "lower-cased": ("bleu_lowercased", 2),
    **{name.upper(): (name, metric.decimals) for name, metric in METRICS.items()},
    "length": ("length_ratio", 3),
    "span": ("span", 2),
}


@dataclass(frozen=True)
class Row:
    """A point of a run: what it scored on both sets."""

    run: PlannedRun
    point: str
    valid: dict[str, Any]
    test: dict[str, Any]
    result: dict[str, Any]


def read_results(folder: Path) -> dict[str, dict[str, Any]]:
    """Results by the name of their run; trials with tiny models do not count."""
    found = (json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json")))
    return {result["name"]: result for result in found if not result.get("tiny")}


def read_published(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text("utf-8"))


def rows_of(runs: Iterable[PlannedRun], results: dict[str, dict[str, Any]]) -> list[Row]:
    """All measured points, in the order of the plan."""
    return [
        Row(run, point["point"], point["valid"], point["test"], results[run.name])
        for run in runs
        if run.name in results
        for point in results[run.name]["points"]
    ]


def table(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in body)]) + "\n"


def number(value: float | None, decimals: int = 2) -> str:
    return "" if value is None else f"{value:.{decimals}f}"


def _scores(scores: dict[str, Any]) -> list[str]:
    return [number(scores.get(key), decimals) for key, decimals in SCORES.values()]


def group_table(group: Group, plan: Plan, results: dict[str, dict[str, Any]]) -> str:
    """All runs of a group on the test set, with what differs from the paper beneath."""
    runs = [run for run in plan.runs if run.group == group]
    notes = list(group.deviations)
    body = []
    for run in runs:
        own = [note for note in run.deviations if note not in notes]
        notes += own
        marks = [i for i, note in enumerate(notes) if note in (*group.deviations, *run.deviations)]
        sign = "".join(f"[{chr(97 + i)}]" for i in marks)
        paper = number(group.paper) if group.paper is not None and not run.use else ""
        measured = rows_of([run], results)
        for row in measured:
            losses = row.result["validation_losses"]
            body.append(
                [
                    f"{run.name}{' ' + row.point if row.point else ''}",
                    paper,
                    *_scores(row.test),
                    number(losses.get("l_var"), 3),
                    number(row.valid["bleu"]),
                    number(row.valid["dal"]),
                    f"{row.result['updates']:,}" if row.result["updates"] else "",
                    number(row.result["train_seconds"], 0) if row.result["updates"] else "",
                    sign,
                ]
            )
        if not measured:
            body.append([run.name, paper, NOT_RUN, *[""] * (len(SCORES) + 4), sign])
    header = ["run", "paper", *SCORES, "L_var", "BLEU tst2012", "DAL tst2012"]
    text = table([*header, "updates", "seconds", ""], body)
    if notes:
        text += "\nBeside the paper:\n"
        text += "".join(f"- [{chr(97 + i)}] {note}\n" for i, note in enumerate(notes))
    return text


def part(number_: int, plan: Plan, results: dict[str, dict[str, Any]]) -> str:
    """Every group of a part: what is claimed, the command, the numbers."""
    text = ""
    for group in plan.groups.values():
        if group.part != number_:
            continue
        text += f"### {group.title}\n\n"
        if group.claim:
            text += f"{'The paper' if number_ == 1 else 'Here'}: {group.claim}.\n\n"
        text += f"    experiments.harness {plan.name} --only {group.name} --data FOLDER\n\n"
        text += group_table(group, plan, results) + "\n"
    return text


def modern_rows(plan: Plan, results: dict[str, dict[str, Any]]) -> list[Row]:
    """The streaming points of part two."""
    runs = [run for run in plan.runs if run.group.part == 2 and "offline" not in run.name]
    return rows_of(runs, results)


def best_within(rows: Sequence[Row], key: str, bound: float) -> Row | None:
    """Of the points with so little latency on the test set, the best on the validation set."""
    inside = [row for row in rows if row.test[key] is not None and row.test[key] <= bound]
    return max(inside, key=lambda row: row.valid["bleu_lowercased"], default=None)


def goals(plan: Plan, results: dict[str, dict[str, Any]], published: dict[str, Any]) -> str:
    """The distance to each goal of part two."""
    rows = modern_rows(plan, results)
    body = []
    for goal, bound, best in published["goals"]["points"]:
        row = best_within(rows, "al", bound)
        cells = [f"{goal:.1f} at AL <= {bound:.1f}", number(best)]
        body.append([*cells, *_against(row, goal, best)])
    goal, best = published["goals"]["offline"]
    offline = rows_of([run for run in plan.runs if run.name in OFFLINE], results)
    cells = [f"{goal:.1f} offline, greedy", number(best)]
    best_row = max(offline, key=lambda row: row.valid["bleu_lowercased"], default=None)
    body.append([*cells, *_against(best_row, goal, best)])
    header = ["goal", "best published", "run", "measured", "AL", "LAAL", "DAL", "length"]
    return table([*header, "to the goal", "over published"], body)


def _against(row: Row | None, goal: float, best: float) -> list[str]:
    if row is None:
        return [NOT_RUN, *[""] * 7]
    test = row.test
    bleu = test["bleu_lowercased"]
    name = f"{row.run.name}{' ' + row.point if row.point else ''}"
    latencies = [number(test[key]) for key in ("al", "laal", "dal")]
    ratio = number(test["length_ratio"], 3)
    return [name, number(bleu), *latencies, ratio, f"{bleu - goal:+.2f}", f"{bleu - best:+.2f}"]


def margins(plan: Plan, results: dict[str, dict[str, Any]], published: dict[str, Any]) -> str:
    """Every published point against our best at no more latency."""
    rows = modern_rows(plan, results)
    body = []
    for system in published["systems"]:
        for al, bleu in system["points"]:
            row = best_within(rows, "al", al)
            name = system["name"] + (" (unverified)" if system.get("unverified") else "")
            cells = [name, number(al), number(bleu)]
            if row is None:
                body.append([*cells, "no point of ours" if rows else NOT_RUN, "", "", "", ""])
                continue
            ours = row.test["bleu_lowercased"]
            shown = f"{row.run.name}{' ' + row.point if row.point else ''}"
            body.append([*cells, shown, number(row.test["al"]), number(row.test["dal"]),
                         number(ours), f"{ours - bleu:+.2f}"])  # fmt: skip
    header = ["published", "AL", "BLEU", "our run", "AL", "DAL", "BLEU", "difference"]
    return table(header, body)


def hard_against_infinite(plan: Plan, results: dict[str, dict[str, Any]]) -> str:
    """Part two: each MMA-H point against MMA-IL at the same DAL, on the line between its best."""
    curves: dict[str, list[Row]] = {}
    for run in plan.runs:
        if run.seed == 1:
            curves.setdefault(run.group.name, []).extend(rows_of([run], results))
    line: list[tuple[float, float]] = []
    points = (
        (row.test["dal"], row.test["bleu_lowercased"])
        for name in ("modern-mma-il", "modern-mma-il-hard")
        for row in curves.get(name, [])
        if row.test["dal"] is not None
    )
    for dal, bleu in sorted(points):
        if not line or bleu > line[-1][1]:
            line.append((dal, bleu))
    body = []
    for row in [*curves.get("modern-mma-h", []), *curves.get("modern-mma-h-hard", [])]:
        dal, bleu = row.test["dal"], row.test["bleu_lowercased"]
        other = None if dal is None else _between(line, dal)
        cells = (
            ["no point of MMA-IL", ""] if other is None else [number(other), f"{bleu - other:+.2f}"]
        )
        body.append([row.run.name, number(dal), number(bleu), *cells])
    if not body:
        body = [["MMA-H", NOT_RUN, "", "", ""]]
    return table(["run", "DAL", "BLEU", "MMA-IL there", "difference"], body)


def _between(line: Sequence[tuple[float, float]], x: float) -> float | None:
    """The value at x of the line through these points; None: x lies outside."""
    for (left, low), (right, high) in itertools.pairwise(line):
        if left <= x <= right:
            return low if right == left else low + (high - low) * (x - left) / (right - left)
    return None


def seeds(plan: Plan, results: dict[str, dict[str, Any]]) -> str:
    """Runs that differ in their seed alone: each, and mean and standard deviation."""
    families: dict[str, list[PlannedRun]] = {}
    for run in plan.runs:
        if "seed" in run.labels:
            families.setdefault(run.name.split("-seed")[0], []).append(run)
    text = ""
    for runs in families.values():
        rows = rows_of(runs, results)
        body = [[r.run.name, str(r.run.seed), *_scores(r.test)] for r in rows]
        body += [[run.name, str(run.seed), NOT_RUN, *[""] * (len(SCORES) - 1)]
                 for run in runs if run.name not in results]  # fmt: skip
        if len(rows) > 1:
            for name, function in (("mean", statistics.mean), ("deviation", statistics.stdev)):
                body.append([name, "", *_over(rows, function)])
        text += table(["run", "seed", *SCORES], body) + "\n"
    return text


def _over(rows: Sequence[Row], function: Callable[[list[float]], float]) -> list[str]:
    cells = []
    for key, decimals in SCORES.values():
        values = [row.test[key] for row in rows if row.test.get(key) is not None]
        cells.append(number(function(values), decimals) if len(values) == len(rows) else "")
    return cells


def offline(plan: Plan, results: dict[str, dict[str, Any]]) -> str:
    """The paper's table of offline models beside ours."""
    body = []
    for run in plan.runs:
        if "offline" not in run.group.name or run.labels:
            continue
        paper = number(run.group.paper) if not run.use else ""
        rows = rows_of([run], results)
        for row in rows:
            body.append([run.name, paper, *_scores(row.test)[:2], number(row.valid["bleu"])])
        if not rows:
            body.append([run.name, paper, NOT_RUN, "", ""])
    return table(["run", "paper", "BLEU", "lower-cased", "BLEU tst2012"], body)


def scratch(plan: Plan, results: dict[str, dict[str, Any]]) -> str:
    """From scratch against fine-tuned, with equally many updates in all."""
    body = []
    for name in ("mma-il-avg0.01", "scratch-mma-il-avg0.01"):
        if name not in {run.name for run in plan.runs}:
            continue
        rows = rows_of([plan.run(name)], results)
        if not rows:
            body.append([name, NOT_RUN, *[""] * len(SCORES)])
        for row in rows:
            start = results.get(row.run.init_from or "", {}).get("updates", 0)
            updates = f"{start:,} + {row.result['updates']:,}" if start else ""
            body.append([name, updates or f"{row.result['updates']:,}", *_scores(row.test)])
    return table(["run", "updates", *SCORES], body)


def provenance(plan: Plan, results: dict[str, dict[str, Any]]) -> str:
    """Where each number comes from."""
    body = []
    for run in plan.runs:
        result = results.get(run.name)
        if result is None or run.recipe is None:
            continue
        machine = result["machine"]
        body.append(
            [
                run.name,
                result["revision"],
                str(result["seed"]),
                f"{result['updates']:,}",
                number(result["train_seconds"], 0),
                f"{machine.get('device', '')}, torch {machine.get('torch', '')}",
                " ".join(result["settings"]),
            ]
        )
    if not body:
        return f"{NOT_RUN.capitalize()}.\n"
    return table(["run", "revision", "seed", "updates", "seconds", "on", "changes"], body)


def progress(plan: Plan, results: dict[str, dict[str, Any]]) -> str:
    """How much of the plan has been run."""
    parts = []
    for number_ in (1, 2):
        runs = [run for run in plan.runs if run.group.part == number_]
        done = sum(run.name in results for run in runs)
        parts.append(f"part {('one', 'two')[number_ - 1]}: {done} of {len(runs)}")
    return f"Runs with a result: {', '.join(parts)}.\n"
