"""Figures: quality against latency for any number of runs; the read/write path of a sentence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simultan.evaluation.instances import Instance
from simultan.latency import find_metric

QualityName = Literal["bleu", "bleu_lowercased", "chrf"]

# Okabe and Ito's colours, told apart by colour-blind eyes; black and yellow are left out
_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
_MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
_INK, _GREY, _PALE = "#222222", "#8a8a8a", "#eef1f4"
_QUALITY = {"bleu": "BLEU", "bleu_lowercased": "BLEU (lower-cased)", "chrf": "chrF"}
_STYLE: Any = {  # Any: matplotlib's own type lists every setting
    "font.size": 9,
    "axes.edgecolor": _GREY,
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "xtick.color": _GREY,
    "ytick.color": _GREY,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "simultan",  # the same figure is the same file
}


@dataclass(frozen=True)
class Run:
    """One point of a curve: a scores.json and the system it belongs to."""

    system: str
    scores: dict[str, Any]


def find_runs(folders: Sequence[str | Path], labels: Sequence[str] = ()) -> list[Run]:
    """Find the runs in these folders; runs of one system form one curve.

    A folder with a scores.json is one run; a folder of such folders is a system with a run in
    each. A run's system is the label given with its folder, or the name in its scores.json, or
    the name of the folder that was given.
    """
    if labels and len(labels) != len(folders):
        raise ValueError(f"{len(labels)} labels for {len(folders)} folders: give one for each")
    runs = []
    for index, folder in enumerate(map(Path, folders)):
        files = [folder / "scores.json"]
        if not files[0].is_file():
            files = sorted(folder.glob("*/scores.json"))
        if not files:
            raise ValueError(
                f"{folder} and the folders in it have no scores.json: run `simultan evaluate` first"
            )
        for file in files:
            scores = _read_scores(file)
            name = labels[index] if labels else scores.get("system") or folder.resolve().name
            runs.append(Run(name, scores))
    return runs


def draw_tradeoff(
    runs: Sequence[Run],
    out: str | Path,
    quality: QualityName = "bleu",
    latencies: Sequence[str] = ("ap", "al", "dal"),
) -> list[Path]:
    """Quality against some of `latency.METRICS`, a curve for each system; .png, .svg and .pdf."""
    metrics = {name.lower(): find_metric(name) for name in latencies}
    systems: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        if run.scores.get(quality) is None:
            raise ValueError(f"a run of {run.system} has no {quality}: score it with references")
        if missing := metrics.keys() - run.scores.keys():
            raise ValueError(f"a run of {run.system} has no {min(missing)}: score it again")
        systems.setdefault(run.system, []).append(run.scores)
    units = {str(run.scores.get("latency_unit", "words")) for run in runs}
    if len(units) > 1:
        raise ValueError("some runs have their latency in words, others in subwords: rescore them")
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(max(4.6, 3.2 * len(metrics)), 3.4), layout="constrained")
        axes = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
        for axis, (key, metric) in zip(axes, metrics.items(), strict=True):
            for index, (system, points) in enumerate(systems.items()):
                known = sorted((p[key], p[quality]) for p in points if p.get(key) is not None)
                axis.plot(
                    [x for x, _ in known],
                    [y for _, y in known],
                    color=_COLOURS[index % len(_COLOURS)],
                    marker=_MARKERS[index % len(_MARKERS)],
                    linestyle=["-", "--", ":"][index // len(_COLOURS) % 3],
                    linewidth=1.6,
                    markersize=5.5,
                    markeredgecolor="white",
                    markeredgewidth=0.7,
                    label=system,
                    clip_on=False,
                    zorder=3,
                )
            axis.set_xlabel(metric.axis(min(units)))
            axis.grid(True)
            axis.margins(x=0.08, y=0.1)
        axes[0].set_ylabel(_QUALITY[quality])
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=min(len(names), 5))
        return _save(figure, out)


def draw_path(instance: Instance, out: str | Path) -> list[Path]:
    """The read/write path of a sentence and, if the log has them, every head's position.

    Each cell is a small table: a dot's place in it is its layer (down) and its head (across).
    """
    rows, columns, delays = _grid(instance)
    heads = instance.token_heads or []
    across, down = len(columns), len(rows)
    with matplotlib.rc_context(_STYLE):
        size = min(0.46 if heads else 0.32, 24 / across, 24 / down)  # inches to a cell
        figure = Figure(
            figsize=(max(4.0, size * across + 1.8), max(2.6, size * down + 1.4)),
            layout="constrained",
        )
        axis = figure.subplots()
        axis.barh(range(down), delays, left=-0.5, height=1.0, color=_PALE, zorder=0)
        xs, ys = [-0.5], [-0.5]
        for row, delay in enumerate(delays):
            xs += [delay - 0.5, delay - 0.5]
            ys += [row - 0.5, row + 0.5]
        axis.plot(xs, ys, color=_INK, linewidth=1.8, zorder=4, clip_on=False, label="path")
        if heads:
            _draw_heads(axis, heads)
        axis.set_xlim(-0.5, across - 0.5)
        axis.set_ylim(down - 0.5, -0.5)
        axis.set_xticks(range(across), columns, rotation=55, ha="left", rotation_mode="anchor")
        axis.set_yticks(range(down), rows)
        axis.set_xticks([x - 0.5 for x in range(across + 1)], minor=True)
        axis.set_yticks([y - 0.5 for y in range(down + 1)], minor=True)
        axis.grid(True, which="minor", zorder=1)
        axis.tick_params(which="both", length=0)
        axis.tick_params(axis="x", top=True, labeltop=True, bottom=False, labelbottom=False)
        for spine in axis.spines.values():
            spine.set_visible(False)
        axis.set_aspect("equal")
        axis.set_xlabel("source, read from left to right →")
        axis.set_ylabel("← target, written downwards")
        return _save(figure, out)


def _draw_heads(axis: Axes, heads: list[list[list[int]]]) -> None:
    layers, count = len(heads[0]), len(heads[0][0])
    colours = matplotlib.colormaps["viridis"].resampled(layers + 1)  # its last, yellow, is too pale
    for layer in range(layers):
        points = [
            (position - 1 + _offset(head, count), row + _offset(layer, layers))
            for row, token in enumerate(heads)
            for head, position in enumerate(token[layer])
        ]
        axis.scatter(
            [x for x, _ in points],
            [y for _, y in points],
            s=min(16, 130 / max(layers, count) ** 1.3),
            color=colours(layer),
            linewidths=0,
            zorder=3,
            label=f"layer {layer + 1}",
        )
    axis.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), handletextpad=0.4)


def _offset(index: int, count: int) -> float:
    """The offset of the index-th of `count` dots from the middle of a cell."""
    return ((index + 0.5) / count - 0.5) * 0.84


def _grid(instance: Instance) -> tuple[list[str], list[str], list[float]]:
    """Names of rows and columns, and the delays: in pieces if the log has them, else in words."""
    if instance.token_delays and instance.target_tokens and instance.source_tokens:
        delays = list(instance.token_delays)
        for row, token in enumerate(instance.token_heads or []):  # a head may stand on the end
            delays[row] = max(delays[row], *(max(layer) for layer in token))
        columns = _pieces(instance.source_tokens)
        if max(delays) > len(columns):
            columns.append("(end)")
        return _pieces(instance.target_tokens), columns, delays
    if not isinstance(instance.source, str) or not instance.delays:
        raise ValueError(
            f"the sentence with index {instance.index} has no path to draw: its source must be a "
            "text, and something must have been written"
        )
    words = instance.prediction.split()
    if len(words) != len(instance.delays):
        raise ValueError(
            f"the sentence with index {instance.index} has {len(words)} words and "
            f"{len(instance.delays)} delays"
        )
    return words, instance.source.split(), instance.delays


def _pieces(pieces: list[str]) -> list[str]:
    """Pieces as they are shown, with a dot where a word continues."""
    if not any(piece.endswith("▁") for piece in pieces):  # whole words
        return list(pieces)
    return [piece.removesuffix("▁") if piece.endswith("▁") else piece + "·" for piece in pieces]


def _read_scores(file: Path) -> dict[str, Any]:
    try:
        scores: dict[str, Any] = dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file} is not a JSON object: {error}") from error
    return scores


def _save(figure: Figure, out: str | Path) -> list[Path]:
    """Save as PNG, SVG and PDF; a file is written completely or not at all."""
    out = Path(out)
    if out.suffix in (".png", ".svg", ".pdf"):
        out = out.with_suffix("")
    out.parent.mkdir(parents=True, exist_ok=True)
    files = []
    # the same figure is the same file: no dates in it
    metadata = {"png": None, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    for kind, note in metadata.items():
        file = out.with_name(f"{out.name}.{kind}")
        part = out.with_name(f".{out.name}.part.{kind}")
        figure.savefig(part, dpi=200, metadata=note)
        files.append(part.replace(file))
    return files
