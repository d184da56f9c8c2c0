"""The experiment's figures, as SVG and PNG, from results/, the plan and published.toml alone."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tables import NOT_RUN, OFFLINE, Row, rows_of

from experiments.harness.plan import Plan
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
# (label, name of the figure's curve, of a run or of a prefix of runs, colour, marker, line)
PAPER = [
    ("MMA-IL", "MMA-IL", BLUE, "o", "-"),
    ("MMA-IL, trained softly", "MMA-IL, soft", BLUE, "*", ""),
    ("MMA-H", "MMA-H", ORANGE, "s", "-"),
    ("MILk (RNN)", "MILk", GREEN, "^", "-"),
    ("hard, MoChA (RNN)", "hard, MoChA", PINK, "X", ""),
    ("wait-k", "wait-k", AMBER, "D", "-"),
]
ONE_HEAD = [  # label, beginning of the names of runs
    ("MILk (Transformer)", "milk-transformer", SKY, "^", "-"),
    ("hard, MoChA (Transformer)", ("hard-transformer", "mocha-transformer"), PINK, "P", ""),
]
RULES = [
    ("test-time wait-k", "test-time-wait-k", "v"),
    ("static read/write", "static", "P"),
    ("wait-if-worse", "wait-if-worse", "<"),
    ("wait-if-diff", "wait-if-diff", ">"),
]
MODERN = [
    ("MMA-IL, hard alignments, longer", "MMA-IL, longer", INK, "h", "-"),
    ("MMA-IL, modern recipe", "MMA-IL, modern", BLUE, "o", "-"),
    ("MMA-IL, hard alignments, too", "MMA-IL, hard alignments", GREEN, "^", "-"),
    ("MMA-H, modern recipe", "MMA-H, modern", ORANGE, "s", "-"),
    ("MMA-H, hard alignments, too", "MMA-H, hard alignments", PINK, "P", "-"),
    ("test-time wait-k over their start", "test-time wait-k, modern", AMBER, "D", "-"),
    ("one of these, its threshold varied", "MMA-IL, threshold", SKY, "*", ":"),
    ("one MMA-IL, trained for every threshold", "MMA-IL, every threshold", GREY, "X", ":"),
]
PAPER_FLOOR = 24.0  # BLEU, cased
FLOOR, SLOW = 24.5, 15.0  # BLEU, AL: what loops or waits for the end is in the table
OTHERS = ["v", "P", "<", ">", "d", "h"]
Results = dict[str, dict[str, Any]]


def draw_all(plan: Plan, results: Results, published: dict[str, Any], out: Path) -> list[Path]:
    """Every figure; one without a result says so."""
    import agents  # it draws with what is below

    with matplotlib.rc_context(STYLE):
        return [
            *_save(draw_paper(plan, results), out / "part-one"),
            *_save(draw_modern(plan, results, published), out / "part-two"),
            *_save(draw_span(plan, results), out / "attention-span"),
            *_save(agents.draw(plan, results), out / "agents"),
            *(
                _save(draw_ablation(plan, results), out / "layers-and-heads")
                if any(name.startswith("layers") for name in results)
                else []
            ),
        ]


def draw_paper(plan: Plan, results: Results) -> Figure:
    """Quality against AP, AL and DAL of the paper's systems, its baselines and the rules."""
    figure = Figure(figsize=(10.4, 4.1), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, 3, sharey=True)
    for axis, key in zip(panels, ("ap", "al", "dal"), strict=True):
        for label, curve, colour, marker, line in PAPER:
            rows = _above(_rows(plan, results, curve))
            _plot(axis, rows, key, "bleu", label, colour, marker, line)
        for label, names, colour, marker, line in ONE_HEAD:
            rows = rows_of([run for run in plan.runs if run.name.startswith(names)], results)
            _plot(axis, _above(rows), key, "bleu", label, colour, marker, line)
        for label, name, marker in RULES:
            rows = _above(rows_of([run for run in plan.runs if run.name == name], results))
            _plot(axis, rows, key, "bleu", label, GREY, marker, "-", thin=True)
        for name, colour, text in (("offline", INK, "Transformer"), ("offline-rnn", GREEN, "RNN")):
            planned = [run for run in plan.runs if run.name == name]
            for run in planned:
                if run.group.paper is not None:
                    axis.axhline(run.group.paper, color=colour, linewidth=0.9, linestyle=":",
                                 label=f"offline {text}, the paper's", zorder=1)  # fmt: skip
            for row in rows_of(planned, results):
                axis.axhline(row.test["bleu"], color=colour, linewidth=1.1, linestyle="--",
                             label=f"offline {text}, ours", zorder=1)  # fmt: skip
        axis.set_xlabel(METRICS[key].axis())
    panels[0].set_ylabel("BLEU, tokenised, cased (tst2013)")
    return _finish(figure, panels, columns=5)


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
        rows = _rows(plan, results, "MMA-IL")
        _plot(axis, rows, key, "bleu_lowercased", "MMA-IL, words", BLUE, "o", ":", thin=True)
        for label, curve, colour, marker, line in MODERN:
            rows = _rows(plan, results, curve)
            if curve == "MMA-IL, threshold":  # the model itself is its point at 0.5
                used = {run.use for run in plan.runs if run.group.figure == curve}
                rows += rows_of([run for run in plan.runs if run.name in used], results)
            rows = [
                row
                for row in rows
                if row.test["bleu_lowercased"] >= FLOOR and row.test["al"] < SLOW
            ]
            _plot(axis, rows, key, "bleu_lowercased", label, colour, marker, line)
        offline = rows_of([run for run in plan.runs if run.name in OFFLINE], results)
        for row in offline[-1:]:
            axis.axhline(row.test["bleu_lowercased"], color=INK, linewidth=1.1, linestyle="--",
                         label="offline, their start", zorder=1)  # fmt: skip
        axis.set_xlabel(METRICS[key].axis().replace("Length-Adaptive ", "Length-Adaptive\n"))
        axis.set_xlim(left=0)
    panels[0].set_ylabel("BLEU, tokenised, lower-cased (tst2013)")
    return _finish(figure, panels, columns=4)


def draw_span(plan: Plan, results: Results) -> Figure:
    """The average attention span against L_var, as the paper has it."""
    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    axis: Axes = figure.subplots()
    series = [
        ("MMA-H, words", "MMA-H", ORANGE, "s", (5, -10)),
        ("MMA-H, subwords", "MMA-H, modern", BLUE, "o", (-17, 5)),
    ]
    for label, curve, colour, marker, place in series:
        points = sorted(
            (row.result["validation_losses"]["l_var"], row.test["span"], _weight(row.result))
            for row in _rows(plan, results, curve)
            if row.test["span"] is not None and "l_var" in row.result["validation_losses"]
        )
        if not points:
            continue
        axis.plot([p[0] for p in points], [p[1] for p in points], color=colour, marker=marker,
                  markeredgecolor="white", linewidth=1.5, label=label, clip_on=False)  # fmt: skip
        for x, y, weight in points:
            axis.annotate(f"{weight:g}", (x, y), xytext=place, textcoords="offset points",
                          fontsize=7.5, color=colour)  # fmt: skip
    if axis.lines:
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)
    axis.set_xlabel(r"$L_{var}$ on tst2012 (source tokens squared); numbers: $\lambda_{var}$")
    axis.set_ylabel("average attention span on tst2013\n(source tokens)")
    return _finish(figure, [axis], columns=2)


def _weight(result: Mapping[str, Any]) -> float:
    weight: float = tomllib.loads(result["config"])["loss"]["lambda_var"]
    return weight


def draw_ablation(plan: Plan, results: Results) -> Figure:
    """Decoder layers and heads: quality offline, quality and DAL of MMA-H, on validation."""
    figure = Figure(figsize=(10.4, 3.5), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, 3)
    parts = [
        ("ablation-offline", "bleu", "offline: BLEU on tst2012"),
        ("ablation-mma-h", "bleu", "MMA-H: BLEU on tst2012"),
        ("ablation-mma-h", "dal", "MMA-H: DAL on tst2012"),
    ]
    colours = {1: AMBER, 3: ORANGE, 6: BLUE}
    for axis, (group, key, title) in zip(panels, parts, strict=True):
        rows = rows_of([run for run in plan.runs if run.group.name == group], results)
        for layers, colour in colours.items():
            points = sorted(
                (int(row.run.labels["heads"]), row.valid[key])
                for row in rows
                if row.run.labels["layers"] == layers and row.valid[key] is not None
            )
            if points:
                name = f"{layers} decoder layer{'s' if layers > 1 else ''}"
                axis.plot(*zip(*points, strict=True), color=colour, marker="o", linewidth=1.6,
                          markeredgecolor="white", label=name, clip_on=False)  # fmt: skip
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
    return _finish(figure, panels, columns=3)


def _above(rows: Sequence[Row]) -> list[Row]:
    """Without what is far below the rest of part one; README.md says so."""
    found = [row for row in rows if row.test["bleu"] >= PAPER_FLOOR]
    return found if found or not rows else list(rows)


def _rows(plan: Plan, results: Results, curve: str) -> list[Row]:
    """The points of a curve; a second seed of a point is not another point."""
    runs = [run for run in plan.runs if run.group.figure == curve and run.seed == 1]
    return rows_of(runs, results)


def _plot(
    axis: Axes, rows: Sequence[Row], key: str, quality: str, label: str, colour: str, marker: str,
    line: str, thin: bool = False,
) -> None:  # fmt: skip
    points = sorted((r.test[key], r.test[quality]) for r in rows if r.test[key] is not None)
    if points:
        axis.plot(
            [x for x, _ in points],
            [y for _, y in points],
            color=colour,
            marker=marker,
            linestyle=line or "none",
            linewidth=0.9 if thin else 1.6,
            markersize=4.5 if thin else 9 if marker == "*" else 6,
            markeredgecolor="white",
            markeredgewidth=0.6,
            alpha=0.85 if thin else 1.0,
            label=label,
            clip_on=False,
            zorder=3 if thin else 4,
        )


def _finish(figure: Figure, panels: Sequence[Axes], columns: int) -> Figure:
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


def _save(figure: Figure, out: Path) -> list[Path]:
    out.parent.mkdir(parents=True, exist_ok=True)
    files = [out.with_suffix(".svg"), out.with_suffix(".png")]
    for file in files:
        # neither a date nor a version: the same results give the same files
        kind = {"Date": None, "Creator": None} if file.suffix == ".svg" else {"Software": None}
        figure.savefig(file, dpi=160, metadata=kind)
    return files
