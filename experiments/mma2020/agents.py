"""Agents over one offline model: their table and their figure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import figures
import tables
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.plan import Plan
from simultan.latency import METRICS

Results = dict[str, dict[str, Any]]
GROUPS = ("agents", "agents-trained")
RULE = "agents-wait-k"  # what others are compared with
CURVES = [  # run, label, colour, marker
    ("agents-align-att", "AlignAtt", figures.BLUE, "o"),
    ("agents-ed-att", "EDAtt", figures.SKY, "h"),
    ("agents-agreement", "agreement", figures.GREEN, "^"),
    ("agents-hold", "hold-n", figures.PINK, "P"),
    ("agents-imitation", "imitation", figures.ORANGE, "s"),
    ("agents-reinforced", "reinforced", figures.INK, "X"),
    ("agents-predict", "PREDICT", figures.INK, "*"),
    ("agents-wait-k", "test-time wait-k", figures.AMBER, "D"),
]
THIN = [
    ("agents-static", "static read/write", "P"),
    ("agents-prefixes", "static, trained on prefix pairs", "p"),
    ("agents-wait-if-worse", "wait-if-worse", "<"),
    ("agents-wait-if-diff", "wait-if-diff", ">"),
]
TRAINED = [("MMA-IL (learned)", "MMA-IL", "o"), ("wait-k (trained)", "wait-k", "d")]
FAST, SLOW, FLOOR = 0.0, 11.0, 26.0  # AL and BLEU of what is drawn; all is in the table


def agents(plan: Plan, results: Results) -> str:
    """Every point, and how far it lies above test-time wait-k at the same latency."""
    runs = [run for run in plan.runs if run.group.name in GROUPS]
    rows = tables.rows_of(runs, results)
    rule = tables.rows_of([run for run in runs if run.name == RULE], results)
    if not rows:
        return f"{tables.NOT_RUN.capitalize()}.\n"
    body = []
    for row in rows:
        test = row.test
        scores = [tables.number(test[key]) for key in ("bleu", "bleu_lowercased")]
        latencies = [tables.number(test[key]) for key in ("al", "laal", "dal")]
        above = [over(rule, test, key) if row.run.name != RULE else "" for key in ("al", "dal")]
        name = row.point or "whole sentences"
        body.append([name, *scores, *latencies, tables.number(test["length_ratio"], 3), *above])
    header = ["agent", "BLEU", "lower-cased", "AL", "LAAL", "DAL", "length"]
    return tables.table([*header, "over wait-k at this AL", "at this DAL"], body)


def over(rule: Sequence[tables.Row], test: dict[str, Any], key: str) -> str:
    """Lower-cased BLEU minus that of the rule, between its points; empty outside of them."""
    points = sorted((row.test[key], row.test["bleu_lowercased"]) for row in rule)
    for (left, low), (right, high) in itertools.pairwise(points):
        if left <= test[key] <= right:
            there = low + (high - low) * (test[key] - left) / (right - left)
            return f"{test['bleu_lowercased'] - there:+.2f}"
    return ""


def draw(plan: Plan, results: Results) -> Figure:
    """Quality against AL and DAL: agents, and what was trained to stream in grey."""
    figure = Figure(figsize=(10.4, 4.8), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, 2, sharey=True)
    by_name = {run.name: run for run in plan.runs}

    def rows(name: str) -> list[tables.Row]:
        found = tables.rows_of([by_name[name]] if name in by_name else [], results)
        return [
            row
            for row in found
            if FAST <= row.test["al"] <= SLOW and row.test["bleu_lowercased"] >= FLOOR
        ]

    for axis, key in zip(panels, ("al", "dal"), strict=True):
        for label, curve, marker in TRAINED:
            runs = [run for run in plan.runs if run.group.figure == curve and run.seed == 1]
            known = [r for r in tables.rows_of(runs, results) if r.test["al"] <= SLOW]
            figures._plot(axis, known, key, "bleu_lowercased", label, figures.GREY, marker, ":")
        for name, label, marker in THIN:
            figures._plot(axis, rows(name), key, "bleu_lowercased", label, figures.GREY, marker,
                          "-", thin=True)  # fmt: skip
        for name, label, colour, marker in CURVES:
            figures._plot(axis, rows(name), key, "bleu_lowercased", label, colour, marker, "-")
        whole = [run for run in plan.runs if run.name == "agents-offline"]
        for row in tables.rows_of(whole, results):
            axis.axhline(row.test["bleu_lowercased"], color=figures.INK, linewidth=1.1,
                         linestyle="--", label="the model, offline", zorder=1)  # fmt: skip
        axis.set_xlabel(METRICS[key].axis())
        axis.set_xlim(left=0)
    panels[0].set_ylabel("BLEU, tokenised, lower-cased (tst2013)")
    return figures._finish(figure, panels, columns=5)
