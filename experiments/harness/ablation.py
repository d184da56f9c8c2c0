"""The table of decoder layers and heads: the paper's claim 4."""

from __future__ import annotations

from typing import Any

from experiments.harness import tables
from experiments.harness.plan import Plan
from experiments.harness.tables import Results


def ablation(plan: Plan, results: Results, latency: str = "test") -> str:
    """One row for each decoder that was trained, small ones first; latency on one of the sets."""
    columns = [  # group, title, set, key of its scores
        ("ablation-offline", f"offline, {plan.valid}", "valid", plan.quality),
        ("ablation-offline", f"offline, {plan.test}", "test", plan.quality),
        ("ablation-mma-h", f"MMA-H, {plan.valid}", "valid", plan.quality),
        ("ablation-mma-h", f"MMA-H, {plan.test}", "test", plan.quality),
        ("ablation-mma-h", "AL", latency, "al"),
        ("ablation-mma-h", "DAL", latency, "dal"),
        ("ablation-mma-h", "span", latency, "span"),
    ]
    cells: dict[tuple[int, int], dict[str, Any]] = {}
    for run in plan.runs:
        if run.group.name.startswith("ablation") and run.name in results:
            place = int(run.labels["layers"]), int(run.labels["heads"])
            cells.setdefault(place, {})[run.group.name] = results[run.name]["points"][0]
    if not cells:
        return tables.not_run()
    body = [
        [str(layers), str(heads), *(_value(found.get(c[0]), *c[2:]) for c in columns)]
        for (layers, heads), found in sorted(cells.items())
    ]
    return tables.table(["layers", "heads", *(column[1] for column in columns)], body)


def _value(point: dict[str, Any] | None, part: str, key: str) -> str:
    return "" if point is None else tables.number(point[part].get(key))
