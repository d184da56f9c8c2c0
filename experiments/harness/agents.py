"""Agents over one offline model: their table and their figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import curves, figures, tables
from experiments.harness.figures import Curve
from experiments.harness.plan import Plan, PlannedRun
from experiments.harness.tables import Results
from simultan.latency import METRICS

AGENTS = "agents"  # how names begin, of groups and runs, that decide over a plan's offline model


def _rule(family: str) -> str:
    """The run that others are compared with."""
    return f"{family}-wait-k"


def curves_of(family: str) -> list[Curve]:
    """Agents over one model, and in grey what was trained to stream."""

    def agent(label: str, name: str, colour: str, marker: str, **more: Any) -> Curve:
        begins = f"{family}-{name}"
        return Curve(label, lambda run: run.name.startswith(begins), colour, marker, **more)

    def prefixes(label: str, point: str, colour: str) -> Curve:
        """A rule over the model that was fine-tuned on prefix pairs."""
        name = f"{label}, model trained on prefix pairs"
        return agent(name, "prefixes", colour, "p", thin=True, point=point)

    beside = [
        figures.curve("MMA-IL (learned)", "MMA-IL", figures.GREY, "o", ":"),
        figures.curve("wait-k (trained)", "wait-k", figures.GREY, "d", ":"),
    ]
    return [
        *(beside if family == AGENTS else ()),
        agent("static read/write", "static", figures.GREY, "P", thin=True),
        prefixes("static", "static", figures.GREY),
        prefixes("wait-k", "wait-k", figures.AMBER),
        agent("wait-if-worse", "wait-if-worse", figures.GREY, "<", line="-.", thin=True),
        agent("wait-if-diff", "wait-if-diff", figures.GREY, ">", line="--", thin=True),
        agent("AlignAtt", "align-att", figures.BLUE, "o"),
        agent("EDAtt", "ed-att", figures.SKY, "h"),
        agent("agreement", "agreement", figures.GREEN, "^"),
        agent("hold-n", "hold", figures.PINK, "P"),
        agent("imitation", "imitation", figures.ORANGE, "s"),
        agent("reinforced", "reinforced", figures.INK, "X"),
        agent("PREDICT", "predict", figures.INK, "*", line="--"),
        agent("test-time wait-k", "wait-k", figures.AMBER, "D"),
        agent("its own heads (MMA-IL)", "own", figures.ORANGE, "o", line=":"),
    ]


SLOW = 11.0  # AL of what is drawn, from 0 on; all is in the table


def runs_of(plan: Plan, family: str) -> list[PlannedRun]:
    """All that decide over one model."""
    return [run for run in plan.runs if f"{run.group.name}-".startswith(f"{family}-")]


def agents(plan: Plan, results: Results, family: str = AGENTS) -> str:
    """Every point, and how far it lies above test-time wait-k at the same latency."""
    runs = runs_of(plan, family)
    rows = tables.rows_of(runs, results)
    rule = tables.rows_of([run for run in runs if run.name == _rule(family)], results)
    if not rows:
        return tables.not_run()
    body = []
    for row in rows:
        test = row.test
        scores = [tables.number(test[key]) for key in ("bleu", "bleu_lowercased")]
        latencies = [tables.number(test[key]) for key in ("al", "laal", "dal")]
        above = [
            _over(rule, test, key, plan.quality) if row.run.name != _rule(family) else ""
            for key in ("al", "dal")
        ]
        name = row.point or "whole sentences"
        if row.run.group.name == "agents-prefixes":
            name += ", prefix pairs"
        if row.run.name == f"{family}-own":
            name = f"its own heads, {name}"
        body.append([name, *scores, *latencies, tables.number(test["length_ratio"], 3), *above])
    header = ["agent", "BLEU", "lower-cased", "AL", "LAAL", "DAL", "length"]
    return tables.table([*header, "over wait-k at this AL", "at this DAL"], body)


def trained(plan: Plan, results: Results, family: str = AGENTS) -> str:
    """Agents with weights: what they were trained on and for, and how often they guess rightly."""
    body = []
    for run in runs_of(plan, family):
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
    over = _difference(rule, test, key, quality)
    return "" if over is None else f"{over:+.2f}"


def _difference(
    rule: Sequence[tables.Row], test: dict[str, Any], key: str, quality: str
) -> float | None:
    line = sorted((r.test[key], r.test[quality]) for r in rule if r.test[key] is not None)
    there = None if test[key] is None else curves.between(line, test[key])
    return None if there is None else test[quality] - there


def draw(
    plan: Plan,
    results: Results,
    label: str,
    floor: float = 26.0,
    family: str = AGENTS,
) -> Figure:
    """Quality against AL and DAL: agents, and what was trained to stream dotted."""
    figure = Figure(figsize=(10.4, 4.8), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, 2, sharey=True)
    for axis, key in zip(panels, ("al", "dal"), strict=True):
        for one in curves_of(family):
            trained = one.line == ":"
            near = [r for r in one.rows(plan, results) if 0 <= figures.lagging(r) <= SLOW]
            rows = [row for row in near if trained or row.test[plan.quality] >= floor]
            figures.plot(axis, rows, key, plan.quality, one)
        whole = [run for run in plan.runs if run.name == f"{family}-offline"]
        for row in tables.rows_of(whole, results):
            axis.axhline(row.test[plan.quality], color=figures.INK, linewidth=1.1,
                         linestyle="--", label="the model, offline", zorder=1)  # fmt: skip
        axis.set_xlabel(METRICS[key].axis())
        axis.set_xlim(left=0)
    panels[0].set_ylabel(label)
    return figures.finish(figure, panels, columns=5)


def draw_over(plan: Plan, results: Results, family: str = AGENTS, floor: float = 0.0) -> Figure:
    """BLEU minus that of test-time wait-k at equal AL and DAL: what crowds in the other figure."""
    figure = Figure(figsize=(10.4, 4.8), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, 2, sharey=True)
    rule = tables.rows_of([run for run in plan.runs if run.name == _rule(family)], results)
    others = [one for one in curves_of(family) if one.label != "test-time wait-k"]
    for axis, key in zip(panels, ("al", "dal"), strict=True):
        for one in others if rule else ():
            found = [row for row in one.rows(plan, results) if row.test[plan.quality] >= floor]
            rows = sorted(found, key=figures.lagging)
            over = [(r.test[key], _difference(rule, r.test, key, plan.quality)) for r in rows]
            figures.plot_points(axis, [(x, y) for x, y in over if y is not None], one)
        axis.axhline(0.0, color=figures.AMBER, linewidth=1.6, label="test-time wait-k", zorder=1)
        axis.set_xlabel(METRICS[key].axis())
    panels[0].set_ylabel("BLEU minus that of test-time wait-k\nat the same latency")
    return figures.finish(figure, panels, columns=5)
