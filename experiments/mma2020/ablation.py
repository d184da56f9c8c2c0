"""The table of decoder layers and heads: the paper's claim 4."""

from __future__ import annotations

from typing import Any

import tables

from experiments.harness.plan import Plan

Results = dict[str, dict[str, Any]]
COLUMNS = [  # group, title, set, key of its scores
    ("ablation-offline", "offline, tst2012", "valid", "bleu_lowercased"),
    ("ablation-offline", "offline, tst2013", "test", "bleu_lowercased"),
    ("ablation-mma-h", "MMA-H, tst2012", "valid", "bleu_lowercased"),
    ("ablation-mma-h", "MMA-H, tst2013", "test", "bleu_lowercased"),
    ("ablation-mma-h", "AL", "test", "al"),
    ("ablation-mma-h", "DAL", "test", "dal"),
    ("ablation-mma-h", "span", "test", "span"),
]


def ablation(plan: Plan, results: Results) -> str:
    """One row for each decoder that was trained, small ones first."""
    cells: dict[tuple[int, int], dict[str, Any]] = {}
    for run in plan.runs:
        if run.group.name.startswith("ablation") and run.name in results:
            place = int(run.labels["layers"]), int(run.labels["heads"])
            cells.setdefault(place, {})[run.group.name] = results[run.name]["points"][0]
    if not cells:
        return f"{tables.NOT_RUN.capitalize()}.\n"
    body = [
        [str(layers), str(heads), *(_value(found.get(c[0]), *c[2:]) for c in COLUMNS)]
        for (layers, heads), found in sorted(cells.items())
    ]
    return tables.table(["layers", "heads", *(column[1] for column in COLUMNS)], body)


def _value(point: dict[str, Any] | None, part: str, key: str) -> str:
    return "" if point is None else tables.number(point[part].get(key))
