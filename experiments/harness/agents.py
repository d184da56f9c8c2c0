"""Agents over one offline model: their table and their figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import curves, figures, tables
from experiments.harness.figures import Curve
from experiments.harness.plan import Plan
from experiments.harness.tables import Results
from simultan.latency import METRICS

GROUPS = ("agents", "agents-trained", "agents-prefixes")
RULE = "agents-wait-k"  # what others are compared with


def _agent(label: str, name: str, colour: str, marker: str, **more: Any) -> Curve:
    return Curve(label, lambda run: run.name == name, colour, marker, **more)


def _prefixes(label: str, point: str, colour: str, marker: str) -> Curve:
    """A rule over the model that was fine-tuned on prefix pairs."""
    name = f"{label}, model trained on prefix pairs"
    return _agent(name, "agents-prefixes", colour, marker, thin=True, point=point)


CURVES = [
    figures.curve("MMA-IL (learned)", "MMA-IL", figures.GREY, "o", ":"),
    figures.curve("wait-k (trained)", "wait-k", figures.GREY, "d", ":"),
    _agent("static read/write", "agents-static", figures.GREY, "P", thin=True),
    _prefixes("static", "static", figures.GREY, "p"),
    _prefixes("wait-k", "wait-k", figures.AMBER, "p"),
    _agent("wait-if-worse", "agents-wait-if-worse", figures.GREY, "<", thin=True),
    _agent("wait-if-diff", "agents-wait-if-diff", figures.GREY, ">", thin=True),
    _agent("AlignAtt", "agents-align-att", figures.BLUE, "o"),
    _agent("EDAtt", "agents-ed-att", figures.SKY, "h"),
    _agent("agreement", "agents-agreement", figures.GREEN, "^"),
    _agent("hold-n", "agents-hold", figures.PINK, "P"),
    _agent("imitation", "agents-imitation", figures.ORANGE, "s"),
    _agent("reinforced", "agents-reinforced", figures.INK, "X"),
    _agent("PREDICT", "agents-predict", figures.INK, "*", line="--"),
    _agent("test-time wait-k", RULE, figures.AMBER, "D"),
]
SLOW = 11.0  # AL of what is drawn; all is in the table


def agents(plan: Plan, results: Results) -> str:
    """Every point, and how far it lies above test-time wait-k at the same latency."""
    runs = [run for run in plan.runs if run.group.name in GROUPS]
    rows = tables.rows_of(runs, results)
    rule = tables.rows_of([run for run in runs if run.name == RULE], results)
    if not rows:
        return tables.not_run()
    body = []
    for row in rows:
        test = row.test
        scores = [tables.number(test[key]) for key in ("bleu", "bleu_lowercased")]
        latencies = [tables.number(test[key]) for key in ("al", "laal", "dal")]
        above = [
            _over(rule, test, key, plan.quality) if row.run.name != RULE else ""
            for key in ("al", "dal")
        ]
        name = row.point or "whole sentences"
        if row.run.group.name == "agents-prefixes":
            name += ", prefix pairs"
        body.append([name, *scores, *latencies, tables.number(test["length_ratio"], 3), *above])
    header = ["agent", "BLEU", "lower-cased", "AL", "LAAL", "DAL", "length"]
    return tables.table([*header, "over wait-k at this AL", "at this DAL"], body)


def trained(plan: Plan, results: Results) -> str:
    """Agents with weights: what they were trained on and for, and how often they guess rightly."""
    body = []
    for run in plan.runs:
        for point in results[run.name]["points"] if run.name in results else ():
            if "agent" not in point:
                continue
            recipe, last, test = point["agent"]["recipe"], point["agent"]["last"], point["test"]
            part = recipe.get("train", {})
            if "oracle" in recipe:
                effort = f"{recipe['oracle']['sentences']:,} sentences of the oracle"
            else:
                episodes = last["update"] * part["sentences"] * part["samples"]
                effort = f"{last['update']:,} updates, {episodes:,} episodes"
            guesses = ["", ""]
            if test.get("guesses"):
                guesses = [tables.number(test["guesses"]), f"{test['guesses_right']:.0%}"]
            price = tables.number(recipe.get("reward", {}).get("lag"), 3)
            body.append([point["point"], recipe["name"], effort, price, *guesses])
    if not body:
        return tables.not_run()
    header = ["agent", "kind", "trained on", "price of a word of lag"]
    return tables.table([*header, "guesses a sentence", "of them right"], body)


def _over(rule: Sequence[tables.Row], test: dict[str, Any], key: str, quality: str) -> str:
    """Quality minus that of the rule, between its points; empty outside of them."""
    line = sorted((r.test[key], r.test[quality]) for r in rule if r.test[key] is not None)
    there = None if test[key] is None else curves.between(line, test[key])
    return "" if there is None else f"{test[quality] - there:+.2f}"


def draw(plan: Plan, results: Results, label: str, floor: float = 26.0) -> Figure:
    """Quality against AL and DAL: agents, and what was trained to stream in grey."""
    figure = Figure(figsize=(10.4, 4.8), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, 2, sharey=True)
    for axis, key in zip(panels, ("al", "dal"), strict=True):
        for one in CURVES:
            trained = one.line == ":"
            rows = [
                row
                for row in one.rows(plan, results)
                if figures.lagging(row) <= SLOW and (trained or row.test[plan.quality] >= floor)
            ]
            figures.plot(axis, rows, key, plan.quality, one)
        whole = [run for run in plan.runs if run.name == "agents-offline"]
        for row in tables.rows_of(whole, results):
            axis.axhline(row.test[plan.quality], color=figures.INK, linewidth=1.1,
                         linestyle="--", label="the model, offline", zorder=1)  # fmt: skip
        axis.set_xlabel(METRICS[key].axis())
        axis.set_xlim(left=0)
    panels[0].set_ylabel(label)
    return figures.finish(figure, panels, columns=5)
