"""Figures of experiments, as SVG and PNG, from their results/ and plans alone."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.ablation import ways_to_stream
from experiments.harness.plan import Plan, PlannedRun
from experiments.harness.tables import NOT_RUN, Results, Row, rows_of
from simultan.latency import METRICS

# Okabe and Ito's colours, told apart by colour-blind eyes
BLUE, ORANGE, GREEN, PINK, AMBER, SKY = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
)  # fmt: skip
INK, GREY = "#222222", "#8a8a8a"
STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.grid": True,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "simultan",
}


@dataclass(frozen=True)
class Curve:
    """Some runs of a plan as one line of a figure."""

    label: str
    holds: Callable[[PlannedRun], bool]
    colour: str
    marker: str
    line: str = "-"  # empty: points alone
    thin: bool = False
    point: str = ""  # only points whose names begin so

    def rows(self, plan: Plan, results: Results) -> list[Row]:
        rows = rows_of([run for run in plan.runs if self.holds(run)], results)
        return [row for row in rows if row.point.startswith(self.point)]


def curve(label: str, figure: str, colour: str, marker: str, line: str = "-") -> Curve:
    """The groups that are a part of a figure's curve; a second seed is not another point."""
    return Curve(
        label, lambda run: run.group.figure == figure and run.seed == 1, colour, marker, line
    )


def named(
    label: str, names: str | tuple[str, ...], colour: str, marker: str, line: str = "-"
) -> Curve:
    """The runs whose names begin so."""
    return Curve(label, lambda run: run.name.startswith(names), colour, marker, line)


def rule(label: str, name: str, marker: str, colour: str = GREY, line: str = "-") -> Curve:
    """Runs that decide by a rule, thin."""
    return Curve(label, lambda run: run.name.startswith(name), colour, marker, line, thin=True)


@dataclass(frozen=True)
class Span:
    """A series of the figure of attention spans: an experiment's MMA-H."""

    label: str
    plan: Plan
    results: Results
    figure: str
    colour: str
    marker: str
    place: tuple[int, int]  # of the weights beside the points


def draw_quality(
    plan: Plan,
    results: Results,
    curves: Sequence[Curve],
    *,
    floor: float,
    label: str,
    subwords: bool = False,
    offline: Sequence[tuple[str, str, str]] = (
        ("offline", INK, "Transformer"),
        ("offline-rnn", GREEN, "RNN"),
    ),
    slow: float = float("inf"),
    paper: bool = True,
) -> Figure:
    """Quality against AP, AL and DAL, with the offline models' levels and, if wanted, the paper's.

    Points below the floor or of more AL than `slow` are left out, unless a curve has no other.
    """
    figure = Figure(figsize=(10.4, 4.1), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, 3, sharey=True)
    for axis, key in zip(panels, ("ap", "al", "dal"), strict=True):
        for one in curves:
            rows = one.rows(plan, results)
            kept = [row for row in rows if row.test["bleu"] >= floor and lagging(row) <= slow]
            own = f"{key}_subwords" if subwords else key
            plot(axis, kept or rows, own, "bleu", one)
        for name, colour, text in offline:
            planned = [run for run in plan.runs if run.name == name]
            for run in planned:
                if paper and run.group.paper is not None:
                    axis.axhline(run.group.paper, color=colour, linewidth=0.9, linestyle=":",
                                 label=f"offline {text}, the paper's", zorder=1)  # fmt: skip
            for row in rows_of(planned, results):
                axis.axhline(row.test["bleu"], color=colour, linewidth=1.1, linestyle="--",
                             label=f"offline {text}, ours", zorder=1)  # fmt: skip
        axis.set_xlabel(METRICS[key].axis().replace("words", "tokens" if subwords else "words"))
    panels[0].set_ylabel(label)
    return finish(figure, panels, columns=5)


def lagging(row: Row) -> float:
    """AL; of a system that wrote nothing, more than any."""
    al: float | None = row.test["al"]
    return float("inf") if al is None else al


def draw_spans(panels: Sequence[tuple[str, Sequence[Span]]]) -> Figure:
    """The average attention span against L_var, as the paper has it: a panel for each pair."""
    figure = Figure(figsize=(5.2 * len(panels), 3.6), layout="constrained")
    axes: Sequence[Axes] = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, series) in zip(axes, panels, strict=True):
        for one in series:
            _plot_span(axis, one)
        plan = series[0].plan
        if axis.lines:
            axis.set_xlim(left=0)
            axis.set_ylim(bottom=0)
        if title:
            axis.set_title(title)
        axis.set_xlabel(
            rf"$L_{{var}}$ on {plan.valid} (source tokens squared); numbers: $\lambda_{{var}}$"
        )
        axis.set_ylabel(f"average attention span on {plan.test}\n(source tokens)")
    return finish(figure, axes, columns=2)


def _plot_span(axis: Axes, one: Span) -> None:
    runs = [r for r in one.plan.runs if r.group.figure == one.figure and r.seed == 1]
    points = sorted(
        (row.result["validation_losses"]["l_var"], row.test["span"], _weight(row.result))
        for row in rows_of(runs, one.results)
        if row.test["span"] is not None and "l_var" in row.result["validation_losses"]
    )
    if not points:
        return
    axis.plot([p[0] for p in points], [p[1] for p in points], color=one.colour, marker=one.marker,
              markeredgecolor="white", linewidth=1.5, label=one.label, clip_on=False)  # fmt: skip
    for x, y, weight in points:
        axis.annotate(f"{weight:g}", (x, y), xytext=one.place, textcoords="offset points",
                      fontsize=7.5, color=one.colour)  # fmt: skip


def _weight(result: Mapping[str, Any]) -> float:
    weight: float = tomllib.loads(result["config"])["loss"]["lambda_var"]
    return weight


def draw_ablation(plan: Plan, results: Results) -> Figure:
    """Decoder layers and heads: quality offline, quality and DAL of MMA-H, on validation; a line
    for each way to stream."""
    figure = Figure(figsize=(10.4, 3.5), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, 3)
    parts = [
        ("ablation-offline", "bleu", f"offline: BLEU on {plan.valid}"),
        ("ablation-mma-h", "bleu", f"MMA-H: BLEU on {plan.valid}"),
        ("ablation-mma-h", "dal", f"MMA-H: DAL on {plan.valid}"),
    ]
    colours = {1: AMBER, 3: ORANGE, 6: BLUE}
    ways = ways_to_stream(plan)
    for axis, (group, key, title) in zip(panels, parts, strict=True):
        runs = [run for run in plan.runs if run.group.name == group and run.seed == 1]
        rows = rows_of(runs, results)
        for (layers, colour), (place, way) in itertools.product(colours.items(), enumerate(ways)):
            points = sorted(
                (int(row.run.labels["heads"]), row.valid[key])
                for row in rows
                if row.run.labels["layers"] == layers and row.valid[key] is not None
                if row.point == (way if group == "ablation-mma-h" else "")
            )
            if points and (place == 0 or group == "ablation-mma-h"):
                name = f"{layers} decoder layer{'s' if layers > 1 else ''}"
                name += f", {way}" if group == "ablation-mma-h" and len(ways) > 1 else ""
                axis.plot(*zip(*points, strict=True), color=colour, marker="o*"[place % 2],
                          linestyle=("-", "--")[place % 2], linewidth=1.6,
                          markersize=(6, 9)[place % 2], markeredgecolor="white", label=name,
                          clip_on=False)  # fmt: skip
        axis.set_xscale("log", base=2)
        axis.set_xticks([1, 4, 8, 16], ["1", "4", "8", "16"])
        axis.set_xlim(0.85, 19)
        axis.minorticks_off()
        axis.set_xlabel("decoder heads")
        axis.set_title(title)
    low, high = (f(axis.get_ylim()[i] for axis in panels[:2]) for i, f in ((0, min), (1, max)))
    if all(axis.lines for axis in panels[:2]):
        for axis in panels[:2]:
            axis.set_ylim(low, high)
    return finish(figure, panels, columns=3)


def plot(axis: Axes, rows: Sequence[Row], key: str, quality: str, one: Curve) -> None:
    # by AL: AP may fall where AL rises, and a line in the order of AP would go to and fro
    measured = [row for row in sorted(rows, key=lagging) if row.test.get(key) is not None]
    plot_points(axis, [(row.test[key], row.test[quality]) for row in measured], one)


def plot_points(axis: Axes, points: Sequence[tuple[float, float]], one: Curve) -> None:
    if points:
        axis.plot(
            [x for x, _ in points],
            [y for _, y in points],
            color=one.colour,
            marker=one.marker,
            linestyle=one.line or "none",
            linewidth=0.9 if one.thin else 1.6,
            markersize=4.5 if one.thin else 9 if one.marker == "*" else 6,
            markeredgecolor="white",
            markeredgewidth=0.6,
            alpha=0.85 if one.thin else 1.0,
            label=one.label,
            clip_on=False,
            zorder=3 if one.thin else 4,
        )


def finish(figure: Figure, panels: Sequence[Axes], columns: int) -> Figure:
    """One legend above; a panel without a point says so."""
    for axis in panels:
        if all(line.get_marker() == "None" for line in axis.lines):  # offline levels at most
            axis.text(0.5, 0.5, NOT_RUN, transform=axis.transAxes, ha="center", color=GREY)
            axis.set_xticks([])
        axis.set_axisbelow(True)
    found: dict[str, Any] = {}
    for axis in panels:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    if found:
        figure.legend(list(found.values()), list(found), loc="outside upper center", ncols=columns)
    return figure


def save(figure: Figure, out: Path) -> list[Path]:
    """As SVG and PNG."""
    out.parent.mkdir(parents=True, exist_ok=True)
    files = [out.with_suffix(".svg"), out.with_suffix(".png")]
    for file in files:
        # neither a date nor a version: the same results give the same files
        kind = {"Date": None, "Creator": None} if file.suffix == ".svg" else {"Software": None}
        figure.savefig(file, dpi=160, metadata=kind)
    return files
