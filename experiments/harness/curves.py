"""Quality at equal latency: systems beside each other on the lines between their points."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from experiments.harness import tables
from experiments.harness.plan import Plan
from experiments.harness.tables import Results, Row, number
from simultan.latency import METRICS

__all__ = [
    "at_equal_latency",
    "between",
    "comparisons",
    "equal",
    "equal_dal",
    "equal_latency",
    "equal_table",
    "frontier",
    "nearest",
    "point_name",
    "shares",
]

Line = list[tuple[float, float]]  # latency and quality
NEAR = 1.0  # words of AL: a slower point that is further away says nothing of this latency


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
    """The points of these groups minus another group at equal latency, by every measure of it.

    A point that is faster than all others stands beside their fastest, if that is near.
    """
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
    body, alone = [], []
    for row in rows:
        own = getattr(row, part)
        bleu = own[plan.quality]
        near = min(getattr(r, part)["al"] for r in fixed) - own["al"] <= NEAR
        cells = []
        for key in METRICS:
            line = sorted((getattr(r, part)[key], getattr(r, part)[plan.quality]) for r in fixed)
            other = between(line, own[key])
            if other is None and near and own[key] < line[0][0]:
                fastest = min(fixed, key=lambda r: getattr(r, part)[key])
                name = fastest.point.replace("=", " = ") or fastest.run.name
                cells.append(f"{bleu - line[0][1]:+.2f} ({name} is slower)")
            else:
                cells.append("" if other is None else f"{bleu - other:+.2f}")
        if any(cells):
            body.append([tables.show(row), number(bleu), number(own["al"]), *cells])
        else:
            alone.append(f"{tables.show(row)} ({number(bleu)} at {number(own['al'])})")
    name = {"test": plan.test, "valid": plan.valid}[part]
    text = tables.table([name, "BLEU", "AL", *(f"by {key.upper()}" for key in METRICS)], body)
    left = f"Nothing to compare with at their latency ({name}): {', '.join(alone)}.\n"
    return "\n".join([*([text] if body else []), *([left] if alone else [])])


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
            body.append([text, tables.show(row), number(dal), number(bleu), *cells])
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


def comparisons(path: Path, wanted: Callable[[str], bool] = lambda claim: True) -> str:
    """Differences with their 95% intervals, as compare.py left them."""
    found = json.loads(path.read_text("utf-8")) if path.exists() else []
    body = [
        [c["claim"], c["one"], c["other"], f"{c['difference']:+.2f}",
         f"{c['low']:+.2f} to {c['high']:+.2f}"]
        for c in found
        if wanted(c["claim"])
    ]  # fmt: skip
    return (
        tables.table(["", "one", "other", "difference", "95%"], body)
        if body
        else (tables.not_run())
    )


def point_name(row: Row) -> str:
    """The name of a point as its file of translations has it."""
    return Path(tables.predictions_of(row) or "").name.split(".jsonl")[0]


def equal(title: str, key: str) -> str:
    """The claim of a comparison with the line of a system at equal latency."""
    name = key.removesuffix("_subwords")
    return f"minus {title} at equal {name.upper()}{', tokens' if name != key else ''}"


def shares(line: Iterable[Row], key: str, latency: float | None) -> dict[str, float] | None:
    """Which points of a line lie around a latency, and how much each counts; None: outside."""
    if latency is None:  # as with beams
        return None
    measured = (row for row in line if row.test[key] is not None)
    rows = sorted(measured, key=lambda row: float(row.test[key]))
    for left, right in itertools.pairwise(rows):
        if left.test[key] <= latency <= right.test[key]:
            apart = right.test[key] - left.test[key]
            share = (latency - left.test[key]) / apart if apart else 0.0
            return {point_name(left): 1 - share, point_name(right): share}
    return None


def at_equal_latency(
    rows: Sequence[Row], lines: Mapping[str, Sequence[Row]], keys: Iterable[str]
) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Every streaming point beside the lines between points of others, to be compared."""
    for key in keys:
        for title, line in lines.items():
            for row in rows:
                found = shares(line, key, row.test[key])
                if found and row not in line:
                    yield equal(title, key), point_name(row), found


def equal_table(
    path: Path, rows: Iterable[Row], columns: Iterable[tuple[str, str]], quality: str = "bleu"
) -> str:
    """Points minus other systems at equal latency: a column for each system and metric."""
    found = json.loads(path.read_text("utf-8")) if path.exists() else []
    known = {(c["claim"], c["one"]): c for c in found}
    claims = [equal(title, key) for title, key in columns]
    body = []
    for row in rows:
        cells = [known.get((claim, point_name(row))) for claim in claims]
        if any(cells):
            own = (number(row.test[key]) for key in (quality, "al", "dal"))
            body.append([tables.show(row), *own, *(
                f"{c['difference']:+.2f} [{c['low']:.2f}, {c['high']:.2f}]" if c else ""
                for c in cells
            )])  # fmt: skip
    return tables.table(["", "BLEU", "AL", "DAL", *claims], body) if body else tables.not_run()
