"""The table of decoder layers and heads: the paper's claim 4."""

from __future__ import annotations

from typing import Any

from experiments.harness.plan import Plan

Results = dict[str, dict[str, Any]]
KINDS = {"ablation-offline": "offline", "ablation-mma-h": "MMA-H"}
COLUMNS = {  # of a cell: set, key of its scores
    "BLEU tst2012": ("valid", "bleu_lowercased"),
    "BLEU tst2013": ("test", "bleu_lowercased"),
    "AL tst2013": ("test", "al"),
    "DAL tst2013": ("test", "dal"),
    "span tst2013": ("test", "span"),
}


def ablation(plan: Plan, results: Results) -> str:
    """One row for each number of layers, one column for each number of heads; only what was run."""
    lines: list[str] = []
    for group, name in KINDS.items():
        cells = {
            (int(run.labels["layers"]), int(run.labels["heads"])): results[run.name]
            for run in plan.runs
            if run.group.name == group and run.name in results
        }
        if not cells:
            continue
        heads = sorted({cell[1] for cell in cells})
        titles = " | ".join(f"{count} head{'s' * (count > 1)}" for count in heads)
        for column, (part, key) in COLUMNS.items():
            if name == "offline" and not key.startswith("bleu"):
                continue  # it reads everything first
            lines += [f"| {name}: {column} | {titles} |", f"|{'---|' * (1 + len(heads))}"]
            for layers in sorted({cell[0] for cell in cells}):
                found = [cells.get((layers, count)) for count in heads]
                shown = " | ".join("" if f is None else _value(f, part, key) for f in found)
                lines.append(f"| {layers} layer{'s' * (layers > 1)} | {shown} |")
            lines.append("")
    return "\n".join(lines) if lines else "Not yet run.\n"


def _value(result: dict[str, Any], part: str, key: str) -> str:
    value = result["points"][0][part].get(key)
    return "" if value is None else f"{value:.2f}"
