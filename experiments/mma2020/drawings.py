"""This experiment's figures: which curves they have, and the one beside published systems."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from goals import OFFLINE
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import agents, figures
from experiments.harness.figures import AMBER, BLUE, GREEN, GREY, INK, ORANGE, PINK, SKY, curve
from experiments.harness.plan import Plan
from experiments.harness.tables import Results, rows_of
from simultan.latency import METRICS

PAPER = [
    curve("MMA-IL", "MMA-IL", BLUE, "o"),
    curve("MMA-IL, trained softly", "MMA-IL, soft", BLUE, "*", ""),
    curve("MMA-H", "MMA-H", ORANGE, "s"),
    dataclasses.replace(
        figures.named("MMA-H, undecided", "mma-h-mass-var0.1", ORANGE, "*", "--"), point="mass"
    ),
    curve("MILk (RNN)", "MILk", GREEN, "^"),
    curve("hard, MoChA (RNN)", "hard, MoChA", PINK, "X", ""),
    curve("wait-k", "wait-k", AMBER, "D"),
    figures.named("MILk (Transformer)", "milk-transformer", SKY, "^"),
    figures.named(
        "hard, MoChA (Transformer)", ("hard-transformer", "mocha-transformer"), PINK, "P", ""
    ),
    figures.rule("test-time wait-k", "test-time-wait-k", "v"),
    figures.rule("static read/write", "static", "P"),
    figures.rule("wait-if-worse", "wait-if-worse", "<"),
    figures.rule("wait-if-diff", "wait-if-diff", ">"),
]
WORDS = dataclasses.replace(curve("MMA-IL, words", "MMA-IL", BLUE, "o", ":"), thin=True)
THRESHOLD = curve("one of these, its threshold varied", "MMA-IL, threshold", SKY, "*", ":")
MODERN = [
    curve("MMA-IL, data of three teachers", "MMA-IL, diverse", INK, "h"),
    curve("trained wait-k, the same data", "wait-k, diverse", AMBER, "P"),
    curve("MMA-H, the same data", "MMA-H, diverse", ORANGE, "X"),
    curve("MMA-IL, modern recipe", "MMA-IL, modern", BLUE, "o"),
    curve("MMA-IL, hard alignments, too", "MMA-IL, hard alignments", GREEN, "^"),
    curve("MMA-H, modern recipe", "MMA-H, modern", ORANGE, "s"),
    curve("test-time wait-k over their start", "test-time wait-k, modern", AMBER, "D"),
    THRESHOLD,
    curve("one MMA-IL, trained for every threshold", "MMA-IL, every threshold", GREY, "X", ":"),
]
PAPER_FLOOR = 24.0  # BLEU, cased
FLOOR, SLOW = 24.5, 15.0  # BLEU, AL: what loops or waits for the end is in the table
OTHERS = ["v", "P", "<", ">", "d", "h"]


def draw_all(plan: Plan, results: Results, published: dict[str, Any], out: Path) -> list[Path]:
    """Every figure; one without a result says so."""
    label = "BLEU, tokenised, cased (tst2013)"
    quality = {"floor": PAPER_FLOOR, "label": label}
    with matplotlib.rc_context(figures.STYLE):
        drawn = {
            "part-one": figures.draw_quality(plan, results, PAPER, **quality),
            "part-two": draw_modern(plan, results, published),
            "attention-span": figures.draw_spans([("", spans(plan, results))]),
            "agents": agents.draw(plan, results, label.replace("cased", "lower-cased")),
        }
        if any(name.startswith("layers") for name in results):
            drawn["layers-and-heads"] = figures.draw_ablation(plan, results)
        return [file for name, one in drawn.items() for file in figures.save(one, out / name)]


def spans(plan: Plan, results: Results) -> list[figures.Span]:
    return [
        figures.Span("MMA-H, words", plan, results, "MMA-H", ORANGE, "s", (5, -10)),
        figures.Span("MMA-H, subwords", plan, results, "MMA-H, modern", BLUE, "o", (-17, 5)),
    ]


def draw_modern(plan: Plan, results: Results, published: dict[str, Any]) -> Figure:
    """Part two: quality against AL beside what was published; against LAAL and DAL, ours alone."""
    figure = Figure(figsize=(10.4, 4.9), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, 3, sharey=True, width_ratios=[1.5, 1, 1])
    for index, system in enumerate(published["systems"]):
        style = (0, (4, 2)) if system.get("unverified") else "-"
        panels[0].plot(*zip(*sorted(map(tuple, system["points"])), strict=True), color="#a8a8a8",
                       marker=OTHERS[index % len(OTHERS)], markersize=4.5, linewidth=1.0,
                       linestyle=style, label=system["name"], zorder=2)  # fmt: skip
    goals = published["goals"]["points"]
    panels[0].scatter([bound for _, bound in goals], [goal for goal, _ in goals], marker="+",
                      s=60, color=INK, linewidths=1.2, label="goals", zorder=5)  # fmt: skip
    for axis, key in zip(panels, ("al", "laal", "dal"), strict=True):
        figures.plot(axis, WORDS.rows(plan, results), key, "bleu_lowercased", WORDS)
        for one in MODERN:
            rows = one.rows(plan, results)
            if one is THRESHOLD:  # the model itself is its point at 0.5
                used = {run.use for run in plan.runs if THRESHOLD.holds(run)}
                rows += rows_of([run for run in plan.runs if run.name in used], results)
            rows = [
                row
                for row in rows
                if row.test["bleu_lowercased"] >= FLOOR and row.test["al"] < SLOW
            ]
            figures.plot(axis, rows, key, "bleu_lowercased", one)
        offline = rows_of([run for run in plan.runs if run.name in OFFLINE], results)
        for row in offline[-1:]:
            axis.axhline(row.test["bleu_lowercased"], color=INK, linewidth=1.1, linestyle="--",
                         label="offline, their start", zorder=1)  # fmt: skip
        axis.set_xlabel(METRICS[key].axis().replace("Length-Adaptive ", "Length-Adaptive\n"))
        axis.set_xlim(left=0)
    panels[0].set_ylabel("BLEU, tokenised, lower-cased (tst2013)")
    return figures.finish(figure, panels, columns=4)
