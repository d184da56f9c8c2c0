"""Tables of an experiment, as Markdown, from its results/ and its plan alone."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.harness.plan import Group, Plan, PlannedRun, label
from simultan.latency import METRICS

Results = dict[str, dict[str, Any]]

NOT_RUN = "not yet run"
SELECTING = (  # groups whose heads select, as far as a plan has them
    "mma-il", "mma-il-soft", "mma-h-starts", "mma-h", "mma-h-screening", "mma-h-again", "one-head",
    "milk", "scratch",
)  # fmt: skip
IN_TOKENS = ("ap", "al", "dal")  # the paper's metrics, where its latencies count subwords


@dataclass(frozen=True)
class Row:
    """A point of a run: what it scored on both sets."""

    run: PlannedRun
    point: str
    valid: dict[str, Any]
    test: dict[str, Any]
    result: dict[str, Any]


def read_results(folder: Path) -> Results:
    """Results by the name of their run; trials with tiny models do not count."""
    found = (json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json")))
    return {result["name"]: result for result in found if not result.get("tiny")}


def rows_of(runs: Iterable[PlannedRun], results: Results) -> list[Row]:
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


def columns(plan: Plan) -> dict[str, tuple[str, int]]:
    """What is shown of a measured set: title, key of its scores, decimals."""
    metrics = {name.upper(): (name, metric.decimals) for name, metric in METRICS.items()}
    if plan.counts_subwords:
        metrics |= {
            f"{name.upper()}, tokens": (f"{name}_subwords", METRICS[name].decimals)
            for name in IN_TOKENS
        }
    return {
        "BLEU": ("bleu", 2),
        "lower-cased": ("bleu_lowercased", 2),
        **metrics,
        "length": ("length_ratio", 3),
        "span": ("span", 2),
    }


def show(row: Row) -> str:
    """The name of a point."""
    return f"{row.run.name}{' ' + row.point if row.point else ''}"


def predictions_of(row: Row) -> str | None:
    """The file of a point's translations, in the experiment's folder; None: they are not kept."""
    points = {point["point"]: point for point in row.result["points"]}
    file: str | None = points[row.point].get("predictions")
    return file


def scores_of(scores: Mapping[str, Any], plan: Plan) -> list[str]:
    return [number(scores.get(key), decimals) for key, decimals in columns(plan).values()]


def not_run() -> str:
    """In place of a table without a row."""
    return f"{NOT_RUN.capitalize()}.\n"


def group_table(group: Group, plan: Plan, results: Results) -> str:
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
                    show(row),
                    paper,
                    *scores_of(row.test, plan),
                    number(losses.get("l_var"), 3),
                    number(row.valid["bleu"]),
                    number(row.valid["dal"]),
                    f"{row.result['updates']:,}" if row.result["updates"] else "",
                    number(row.result["train_seconds"], 0) if row.result["updates"] else "",
                    sign,
                ]
            )
        if not measured:
            body.append([run.name, paper, NOT_RUN, *[""] * (len(columns(plan)) + 4), sign])
    header = ["run", "paper", *columns(plan), "L_var", f"BLEU {plan.valid}", f"DAL {plan.valid}"]
    text = table([*header, "updates", "seconds", ""], body)
    if notes:
        text += "\nBeside the paper:\n"
        text += "".join(f"- [{chr(97 + i)}] {note}\n" for i, note in enumerate(notes))
    return text


def part(number_: int, plan: Plan, results: Results) -> str:
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


def of_group(plan: Plan, name: str) -> list[PlannedRun]:
    """The runs of a group; none where the plan has no such group."""
    return [run for run in plan.runs if run.group.name == name]


def first_seed(plan: Plan, name: str) -> list[PlannedRun]:
    return [run for run in of_group(plan, name) if run.seed == 1]


def soft_and_streamed(plan: Plan, results: Results) -> str:
    """What is trained beside what streams: L_avg and DAL, the root of L_var and the span, and, of
    results that have it, NLL with the stops of a stream."""
    body, hard = [], False
    for name in SELECTING:
        for row in rows_of(of_group(plan, name), results):
            losses = row.result["validation_losses"]
            if "l_avg" not in losses:
                continue
            hard |= "nll_hard" in losses
            root = losses["l_var"] ** 0.5
            body.append(
                [row.run.name, number(losses["nll"], 3), number(losses.get("nll_hard"), 3),
                 number(losses["l_avg"]), number(row.valid["dal"]), number(root),
                 number(row.valid.get("span"))]
            )  # fmt: skip
    if not body:
        return not_run()
    header = ["run", "NLL", "NLL, stops of a stream", "L_avg, expected", "DAL, streamed"]
    header += ["root of L_var, expected", "span, streamed"]
    kept = [cell for cell in range(len(header)) if hard or cell != 2]
    return table([header[c] for c in kept], [[cells[c] for c in kept] for cells in body])


def habits(plan: Plan, results: Results) -> str:
    """What the heads of each layer do: mean over them, and the extremes."""
    body = []
    for name in ("mma-il", "mma-h"):
        for run in first_seed(plan, name):
            for point in results.get(run.name, {}).get("points", []):
                found = point.get("heads", {})
                for layer, behind in enumerate(found.get("behind", []), 1):
                    leads, still = found["leads"][layer - 1], found["still"][layer - 1]
                    cells = [" ".join(f"{value:.1f}" for value in behind)]
                    cells += [" ".join(f"{100 * v:.0f}" for v in part) for part in (leads, still)]
                    body.append([run.name if layer == 1 else "", str(layer), *cells])
    if not body:
        return not_run()
    return table(
        ["run", "layer", "tokens behind the furthest head", "leads, %", "does not move, %"], body
    )


def seeds(plan: Plan, results: Results) -> str:
    """Runs that differ in their seed alone: each, and mean and standard deviation."""
    families: dict[str, list[PlannedRun]] = {}
    for run in plan.runs:
        families.setdefault(run.name.split("-seed")[0], []).append(run)
    text = ""
    for runs in families.values():
        shared = {label(point) for point in runs[-1].points}  # the first may have more
        rows = [row for row in rows_of(runs, results) if row.point in shared]
        if len({row.run.seed for row in rows}) < 2:
            continue
        body = [[r.run.name, str(r.run.seed), *scores_of(r.test, plan)] for r in rows]
        body += [[run.name, str(run.seed), NOT_RUN, *[""] * (len(columns(plan)) - 1)]
                 for run in runs if run.name not in results]  # fmt: skip
        for name, function in (("mean", statistics.mean), ("deviation", statistics.stdev)):
            body.append([name, "", *_over(rows, function, plan)])
        text += table(["run", "seed", *columns(plan)], body) + "\n"
    return text or not_run()


def _over(rows: Sequence[Row], function: Callable[[list[float]], float], plan: Plan) -> list[str]:
    cells = []
    for key, decimals in columns(plan).values():
        values = [row.test[key] for row in rows if row.test.get(key) is not None]
        cells.append(number(function(values), decimals) if len(values) == len(rows) else "")
    return cells


def offline(plan: Plan, results: Results) -> str:
    """The paper's table of offline models beside ours."""
    body = []
    for run in plan.runs:
        if "offline" not in run.group.name or run.labels:
            continue
        paper = number(run.group.paper) if not run.use else ""
        rows = rows_of([run], results)
        for row in rows:
            body.append(
                [run.name, paper, *scores_of(row.test, plan)[:2], number(row.valid["bleu"])]
            )
        if not rows:
            body.append([run.name, paper, NOT_RUN, "", ""])
    return table(["run", "paper", "BLEU", "lower-cased", f"BLEU {plan.valid}"], body)


def provenance(plan: Plan, results: Results) -> str:
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
        return not_run()
    return table(["run", "revision", "seed", "updates", "seconds", "on", "changes"], body)


def progress(plan: Plan, results: Results) -> str:
    """How much of the plan has been run."""
    parts = []
    for number_ in (1, 2):
        runs = [run for run in plan.runs if run.group.part == number_]
        done = sum(run.name in results for run in runs)
        if not runs:
            continue
        parts.append(f"part {('one', 'two')[number_ - 1]}: {done} of {len(runs)}")
    return f"Runs with a result: {', '.join(parts)}.\n"
