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
LEARNED = ("mma-il", "mma-il-soft", "mma-h")  # of part one
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


def streaming_rows(number_: int, plan: Plan, results: dict[str, dict[str, Any]]) -> list[Row]:
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
    return rows_of(runs, results)


def best_within(rows: Sequence[Row], bound: float) -> Row | None:
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


def goals(plan: Plan, results: dict[str, dict[str, Any]], published: dict[str, Any]) -> str:
    """The distance to each goal of part two."""
    rows = streaming_rows(2, plan, results)
    body = []
    for goal, bound in published["goals"]["points"]:
        row, best = best_within(rows, bound), best_published(published, bound)
        cells = [f"{goal:.1f} at AL <= {bound:.1f}", number(best)]
        body.append([*cells, *_against(row, goal, best)])
    goal = published["goals"]["offline"]
    offline = rows_of([run for run in plan.runs if run.name in OFFLINE], results)
    best_row = max(offline, key=lambda row: row.valid["bleu_lowercased"], default=None)
    body.append([f"{goal:.1f} offline, greedy", "", *_against(best_row, goal, None)])
    header = ["goal", "best published", "run", "measured", "AL", "LAAL", "DAL", "length"]
    return table([*header, "to the goal", "over published"], body)


def _against(row: Row | None, goal: float, best: float | None) -> list[str]:
    if row is None:
        return [NOT_RUN, *[""] * 7]
    test = row.test
    bleu = test["bleu_lowercased"]
    name = f"{row.run.name}{' ' + row.point if row.point else ''}"
    latencies = [number(test[key]) for key in ("al", "laal", "dal")]
    ratio = number(test["length_ratio"], 3)
    over = "" if best is None else f"{bleu - best:+.2f}"
    return [name, number(bleu), *latencies, ratio, f"{bleu - goal:+.2f}", over]


def margins(
    number_: int, plan: Plan, results: dict[str, dict[str, Any]], published: dict[str, Any]
) -> str:
    """Every published point against our best at no more latency."""
    rows = streaming_rows(number_, plan, results)
    body = []
    for system in published["systems"]:
        for al, bleu in system["points"]:
            row = best_within(rows, al)
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
    """Each MMA-H point against MMA-IL at the same DAL, on the line between its best."""
    body = []
    for text, infinite, hard in (
        ("words", ("mma-il",), ("mma-h",)),
        (
            "subwords",
            ("modern-mma-il", "modern-mma-il-hard", "modern-mma-il-long"),
            ("modern-mma-h",),
        ),
    ):
        rows = [row for name in infinite for row in rows_of(_first_seed(plan, name), results)]
        line = _frontier(rows, "dal")
        for row in [row for name in hard for row in rows_of(_of_group(plan, name), results)]:
            dal, bleu = row.test["dal"], row.test["bleu_lowercased"]
            other = None if dal is None else _between(line, dal)
            beyond = dal is not None and bool(line) and dal > line[-1][0]
            if beyond:
                other = line[-1][1]
            cells = ["", ""] if other is None else [
                f"{number(other)}{' (its slowest)' if beyond else ''}", f"{bleu - other:+.2f}"
            ]  # fmt: skip
            body.append([text, row.run.name, number(dal), number(bleu), *cells])
    if not body:
        body = [["", "MMA-H", NOT_RUN, "", "", ""]]
    return table(["text", "run", "DAL", "BLEU", "MMA-IL there", "difference"], body)


def _of_group(plan: Plan, name: str) -> list[PlannedRun]:
    return [run for run in plan.runs if run.group.name == name]


def _first_seed(plan: Plan, name: str) -> list[PlannedRun]:
    return [run for run in _of_group(plan, name) if run.seed == 1]


def _frontier(rows: Sequence[Row], key: str) -> list[tuple[float, float]]:
    """Latency and lower-cased BLEU of the points that no faster one beats."""
    line: list[tuple[float, float]] = []
    points = [(r.test[key], r.test["bleu_lowercased"]) for r in rows if r.test[key] is not None]
    for latency, bleu in sorted(points):
        if not line or bleu > line[-1][1]:
            line.append((latency, bleu))
    return line


def equal_latency(plan: Plan, results: dict[str, dict[str, Any]]) -> str:
    """Learned policies minus trained wait-k at equal latency, by every measure of it."""
    if not rows_of(_of_group(plan, "wait-k"), results):
        return f"{NOT_RUN.capitalize()}.\n"
    return "\n".join(_equal_latency(plan, results, part) for part in ("test", "valid"))


def _equal_latency(plan: Plan, results: dict[str, dict[str, Any]], part: str) -> str:
    fixed = rows_of(_of_group(plan, "wait-k"), results)
    body = []
    for name in ("mma-il", "mma-il-soft", "mma-h", "one-head"):
        for row in rows_of(_of_group(plan, name), results):
            own = getattr(row, part)
            bleu = own["bleu_lowercased"]
            cells = []
            for key in METRICS:
                scores = [getattr(r, part) for r in fixed]
                points = sorted((s[key], s["bleu_lowercased"]) for s in scores)
                other = _between(points, own[key])
                faster = own[key] < points[0][0]
                if other is None and faster:
                    cells.append(f"{bleu - points[0][1]:+.2f} (k = 1 is slower)")
                else:
                    cells.append("" if other is None else f"{bleu - other:+.2f}")
            body.append([row.run.name, number(bleu), number(own["al"]), *cells])
    name = {"test": "tst2013", "valid": "tst2012"}[part]
    return table([name, "BLEU", "AL", *(f"by {key.upper()}" for key in METRICS)], body)


def soft_and_streamed(plan: Plan, results: dict[str, dict[str, Any]]) -> str:
    """What is trained beside what streams: L_avg and DAL, the root of L_var and the span."""
    body = []
    for name in ("mma-il", "mma-il-soft", "mma-h-starts", "mma-h", "one-head", "milk", "scratch"):
        for row in rows_of(_of_group(plan, name) if name in plan.groups else [], results):
            losses = row.result["validation_losses"]
            if "l_avg" not in losses:
                continue
            root = losses["l_var"] ** 0.5
            body.append(
                [row.run.name, number(losses["nll"], 3), number(losses["l_avg"]),
                 number(row.valid["dal"]), number(root), number(row.valid.get("span"))]
            )  # fmt: skip
    if not body:
        return f"{NOT_RUN.capitalize()}.\n"
    header = ["run", "NLL", "L_avg, expected", "DAL, streamed", "root of L_var, expected"]
    return table([*header, "span, streamed"], body)


def habits(plan: Plan, results: dict[str, dict[str, Any]]) -> str:
    """What the heads of each layer do: mean over them, and the extremes."""
    body = []
    for name in ("mma-il", "mma-h"):
        for run in _first_seed(plan, name) if name in plan.groups else []:
            for point in results.get(run.name, {}).get("points", []):
                found = point.get("heads", {})
                for layer, behind in enumerate(found.get("behind", []), 1):
                    leads, still = found["leads"][layer - 1], found["still"][layer - 1]
                    cells = [" ".join(f"{value:.1f}" for value in behind)]
                    cells += [" ".join(f"{100 * v:.0f}" for v in part) for part in (leads, still)]
                    body.append([run.name if layer == 1 else "", str(layer), *cells])
    if not body:
        return f"{NOT_RUN.capitalize()}.\n"
    return table(
        ["run", "layer", "tokens behind the furthest head", "leads, %", "does not move, %"], body
    )


def comparisons(path: Path) -> str:
    """Differences with their 95% intervals, as compare.py left them."""
    if not path.exists():
        return f"{NOT_RUN.capitalize()}.\n"
    body = [
        [c["claim"], c["one"], c["other"], f"{c['difference']:+.2f}",
         f"{c['low']:+.2f} to {c['high']:+.2f}"]
        for c in json.loads(path.read_text("utf-8"))
    ]  # fmt: skip
    return table(["", "one", "other", "difference", "95%"], body)


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
        families.setdefault(run.name.split("-seed")[0], []).append(run)
    families = {name: runs for name, runs in families.items() if len(runs) > 1}
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
    """From scratch against fine-tuned."""
    body = []
    for name in ("mma-il-avg0.02", "mma-il-avg0.04", "scratch-mma-il-avg0.01"):
        if name not in {run.name for run in plan.runs}:
            continue
        rows = rows_of([plan.run(name)], results)
        if not rows:
            body.append([name, NOT_RUN, *[""] * len(SCORES)])
        for row in rows:
            updates, before = [], row.run.name
            while before in results:
                updates.append(f"{results[before]['updates']:,}")
                before = plan.run(before).init_from
            body.append([name, " + ".join(reversed(updates)), *_scores(row.test)])
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
