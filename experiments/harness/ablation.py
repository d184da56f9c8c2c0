"""The table of decoder layers and heads: the paper's claim 4."""

from __future__ import annotations

from typing import Any

from experiments.harness import tables
from experiments.harness.plan import Plan, label
from experiments.harness.tables import Results


def ablation(plan: Plan, results: Results, latency: str = "test") -> str:
    """A row for each decoder and way to stream it, small ones first; latency on one of the sets."""
    columns = [  # group, title, set, key of its scores
        ("ablation-offline", f"offline, {plan.valid}", "valid", plan.quality),
        ("ablation-offline", f"offline, {plan.test}", "test", plan.quality),
        ("ablation-mma-h", f"MMA-H, {plan.valid}", "valid", plan.quality),
        ("ablation-mma-h", f"MMA-H, {plan.test}", "test", plan.quality),
        ("ablation-mma-h", "AL", latency, "al"),
        ("ablation-mma-h", "DAL", latency, "dal"),
        ("ablation-mma-h", "span", latency, "span"),
    ]
    ways = ways_to_stream(plan)
    cells: dict[tuple[int, int], dict[tuple[str, str], dict[str, Any]]] = {}
    for run in plan.runs:
        if run.group.name.startswith("ablation") and run.name in results and run.seed == 1:
            found = cells.setdefault((int(run.labels["layers"]), int(run.labels["heads"])), {})
            for point in results[run.name]["points"]:
                found[run.group.name, point["point"]] = point
    if not cells:
        return tables.not_run()
    body = []
    for (layers, heads), found in sorted(cells.items()):
        streamed = [way for way in ways if ("ablation-mma-h", way) in found] or ways[:1]
        for way in streamed:
            points = {"ablation-offline": found.get(("ablation-offline", ""))}
            points["ablation-mma-h"] = found.get(("ablation-mma-h", way))
            named = [way if points["ablation-mma-h"] else ""] if len(ways) > 1 else []
            values = [_value(points[c[0]], *c[2:]) for c in columns]
            body.append([str(layers), str(heads), *values[:2], *named, *values[2:]])
    titles = [column[1] for column in columns]
    streams = ["streamed"] if len(ways) > 1 else []
    return tables.table(["layers", "heads", *titles[:2], *streams, *titles[2:]], body)


def ways_to_stream(plan: Plan) -> list[str]:
    """The points at which MMA-H's shapes are measured."""
    runs = [run for run in plan.runs if run.group.name == "ablation-mma-h"]
    return list(dict.fromkeys(label(point) for run in runs for point in run.points)) or [""]


def _value(point: dict[str, Any] | None, part: str, key: str) -> str:
    return "" if point is None else tables.number(point[part].get(key))
