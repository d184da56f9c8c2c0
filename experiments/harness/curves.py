"""Quality at equal latency: systems beside each other on the lines between their points."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from experiments.harness import tables
from experiments.harness.plan import Plan
from experiments.harness.tables import Results, Row, number
from simultan.latency import METRICS

__all__ = ["between", "comparisons", "equal_dal", "equal_latency", "frontier", "nearest"]

Line = list[tuple[float, float]]  # latency and quality


def between(line: Sequence[tuple[float, float]], x: float) -> float | None:
    """The value at x of the line through these points; None: x lies outside."""
    for (left, low), (right, high) in itertools.pairwise(line):
        if left <= x <= right:
            return low if right == left else low + (high - low) * (x - left) / (right - left)
    return None


def frontier(rows: Sequence[Row], key: str, quality: str) -> Line:
    """Latency and quality of the points that no faster one beats."""
    line: Line = []
    points = [(row.test[key], row.test[quality]) for row in rows if row.test[key] is not None]
    for latency, value in sorted(points):
        if not line or value > line[-1][1]:
            line.append((latency, value))
    return line


def equal_latency(plan: Plan, results: Results, names: Iterable[str], other: str = "wait-k") -> str:
    """The points of these groups minus another group at equal latency, by every measure of it."""
    fixed = _wrote(tables.rows_of(tables.first_seed(plan, other), results))
    runs = [run for name in names for run in tables.of_group(plan, name)]
    rows = _wrote(tables.rows_of(runs, results))
    if not fixed:
        return tables.not_run()
    return "\n".join(_equal_latency(plan, rows, fixed, part) for part in ("test", "valid"))


def _wrote(rows: Sequence[Row]) -> list[Row]:
    """Without those that wrote nothing, whose latency is not known."""
    return [row for row in rows if None not in (row.test["al"], row.valid["al"])]


def _equal_latency(plan: Plan, rows: Sequence[Row], fixed: Sequence[Row], part: str) -> str:
    body = []
    for row in rows:
        own = getattr(row, part)
        bleu = own[plan.quality]
        cells = []
        for key in METRICS:
            line = sorted((getattr(r, part)[key], getattr(r, part)[plan.quality]) for r in fixed)
            other = between(line, own[key])
            if other is None and own[key] < line[0][0]:
                fastest = min(fixed, key=lambda r: getattr(r, part)[key])
                name = fastest.point.replace("=", " = ") or fastest.run.name
                cells.append(f"{bleu - line[0][1]:+.2f} ({name} is slower)")
            else:
                cells.append("" if other is None else f"{bleu - other:+.2f}")
        body.append([row.run.name, number(bleu), number(own["al"]), *cells])
    name = {"test": plan.test, "valid": plan.valid}[part]
    return tables.table([name, "BLEU", "AL", *(f"by {key.upper()}" for key in METRICS)], body)


def equal_dal(
    plan: Plan,
    results: Results,
    families: Iterable[tuple[str, Sequence[str], Sequence[str]]],
    titles: tuple[str, str],
) -> str:
    """Each point of some groups against others at the same DAL, on the line between their best.

    A family is a name, the groups of the line and the groups of the points.
    """
    body = []
    for text, infinite, hard in families:
        runs = [run for name in infinite for run in tables.first_seed(plan, name)]
        line = frontier(tables.rows_of(runs, results), "dal", plan.quality)
        runs = [run for name in hard for run in tables.of_group(plan, name)]
        for row in tables.rows_of(runs, results):
            dal, bleu = row.test["dal"], row.test[plan.quality]
            other = None if dal is None else between(line, dal)
            beyond = dal is not None and bool(line) and dal > line[-1][0]
            if beyond:
                other = line[-1][1]
            cells = ["", ""] if other is None else [
                f"{number(other)}{' (its slowest)' if beyond else ''}", f"{bleu - other:+.2f}"
            ]  # fmt: skip
            body.append([text, row.run.name, number(dal), number(bleu), *cells])
    if not body:
        body = [["", titles[0], tables.NOT_RUN, "", "", ""]]
    header = ["text", "run", "DAL", "BLEU", f"{titles[1]} there", "difference"]
    return tables.table(header, body)


def nearest(
    plan: Plan, results: Results, claims: Iterable[tuple[str, Sequence[str], str]], near: float
) -> Iterator[tuple[str, Row, Row]]:
    """For each point of some groups, another group's point with the nearest AL on validation.

    A claim is what is said, the groups of the one and the group of the other. Points further
    apart than `near` are no pair, but with offline models, which have no latency to compare.
    """

    def kept(group: str) -> list[Row]:
        rows = tables.rows_of(tables.of_group(plan, group), results)
        return [row for row in _wrote(rows) if tables.predictions_of(row)]

    for claim, groups, other in claims:
        others = kept(other)
        for row in (row for group in groups for row in kept(group)):
            there = min(others, key=lambda o: abs(o.valid["al"] - row.valid["al"]), default=None)
            if there is None:
                continue
            if other.startswith("offline") or abs(there.valid["al"] - row.valid["al"]) <= near:
                yield claim, row, there


def comparisons(path: Path) -> str:
    """Differences with their 95% intervals, as compare.py left them."""
    if not path.exists():
        return tables.not_run()
    body = [
        [c["claim"], c["one"], c["other"], f"{c['difference']:+.2f}",
         f"{c['low']:+.2f} to {c['high']:+.2f}"]
        for c in json.loads(path.read_text("utf-8"))
    ]  # fmt: skip
    return tables.table(["", "one", "other", "difference", "95%"], body)
