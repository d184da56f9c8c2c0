"""Draws every figure and writes README.md and the tables of docs/reproduction.md from results/.

make -C experiments/mma2020 figures
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import drawings  # noqa: E402
import goals  # noqa: E402

from experiments.harness import ablation, agents, curves, report, tables  # noqa: E402
from experiments.harness import plan as plans  # noqa: E402
from experiments.harness.plan import Plan  # noqa: E402
from experiments.harness.tables import Results  # noqa: E402

LEARNED = ("mma-il", "mma-il-soft", "mma-h", "mma-h-mass", "one-head")
HARD = [  # text, MMA-IL, MMA-H
    ("words", ("mma-il",), ("mma-h", "mma-h-mass")),
    ("subwords", ("modern-mma-il", "modern-mma-il-hard"), ("modern-mma-h",)),
    ("subwords, diverse", ("modern-mma-il-diverse",), ("modern-mma-h-diverse",)),
]
DIVERSE = ("modern-mma-il-diverse", "modern-mma-h-diverse", "modern-diverse-rules")


def blocks(plan: Plan, results: Results, published: dict[str, Any]) -> dict[str, str]:
    """Every generated piece of text, by name."""
    sources = tables.table(
        ["system", "source", "AL / BLEU"],
        [
            [
                system["name"] + (" (unverified)" if system.get("unverified") else ""),
                system["source"],
                ", ".join(f"{al:.2f}/{bleu:.2f}" for al, bleu in system["points"]),
            ]
            for system in published["systems"]
        ],
    )
    compared = HERE / "comparisons.json"
    runs = [run for name in LEARNED for run in tables.of_group(plan, name)]
    rows = tables.rows_of(runs, results)
    return {
        "progress": tables.progress(plan, results),
        "part-one": tables.part(1, plan, results),
        "part-two": tables.part(2, plan, results),
        "goals": goals.goals(plan, results, published),
        "margins-words": goals.margins(1, plan, results, published),
        "margins": goals.margins(2, plan, results, published),
        "equal-latency": curves.equal_latency(plan, results, LEARNED),
        "equal-latency-subwords": curves.equal_latency(plan, results, DIVERSE, "modern-wait-k"),
        "soft": tables.soft_and_streamed(plan, results),
        "habits": tables.habits(plan, results),
        "comparisons": curves.comparisons(compared, lambda claim: "at equal" not in claim),
        **{
            name: curves.equal_table(compared, rows, itertools.product(titles, keys), plan.quality)
            for name, titles, keys in (
                ("over-milk", ("MILk (RNN)", "MILk (Transformer)"), ("al", "dal")),
                ("over-wait-k", ("trained wait-k",), ("al", "laal", "dal")),
                ("over-mma-il", ("MMA-IL",), ("al", "laal", "dal")),
            )
        },
        "mass": undecided(plan, results, compared),
        "hard": curves.equal_dal(plan, results, HARD, ("MMA-H", "MMA-IL")),
        "seeds": tables.seeds(plan, results),
        "scratch": goals.scratch(plan, results),
        "provenance": tables.provenance(plan, results),
        "published": sources,
        "offline": tables.offline(plan, results),
        "ablation": ablation.ablation(plan, results),
        "agents": agents.agents(plan, results),
        "agents-trained": agents.trained(plan, results),
    }


def undecided(plan: Plan, results: Results, compared: Path) -> str:
    """MMA-H streamed as it was trained beside a threshold over the same weights."""
    over = {
        c["one"]: f"{c['difference']:+.2f} [{c['low']:.2f}, {c['high']:.2f}]"
        for c in json.loads(compared.read_text(encoding="utf-8"))
        if "the same weights" in c["claim"]
    }
    body = [
        [row.run.name, row.point,
         *(tables.number(row.test[k]) for k in (plan.quality, "al", "dal")),
         tables.number(row.test["length_ratio"], 3), over.get(curves.point_name(row), ""),
         *(tables.number(row.valid[k]) for k in (plan.quality, "al", "dal"))]
        for row in tables.rows_of(tables.of_group(plan, "mma-h-mass"), results)
    ]  # fmt: skip
    header = ["run", "stream", "BLEU", "AL", "DAL", "length", "over the threshold"]
    header += [f"{name} {plan.valid}" for name in ("BLEU", "AL", "DAL")]
    return tables.table(header, body) if body else tables.not_run()


def write_report(folder: Path, document: Path | None, plan_file: Path | None = None) -> list[Path]:
    """README.md and figures/ in a folder with results/; the blocks of a document, if given."""
    plan = plans.load(plan_file or folder / "plan.toml")
    results = tables.read_results(folder / "results")
    published = goals.read_published(HERE / "published.toml")
    pieces = blocks(plan, results, published)
    files = drawings.draw_all(plan, results, published, folder / "figures")
    template = HERE / "README.template.md"
    return [*files, *report.write_pages(folder / "README.md", template, document, pieces)]


if __name__ == "__main__":
    report.main(HERE, __doc__, write_report)
