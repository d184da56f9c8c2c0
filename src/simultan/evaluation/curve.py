"""A curve: several ways to decode with one model, in one table and one figure; its lags."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from simultan import latency
from simultan.atomic import write_text
from simultan.evaluation.evaluate import evaluate
from simultan.evaluation.figures import Run, draw_tradeoff
from simultan.evaluation.scores import Scores
from simultan.evaluation.scoring import Scoring
from simultan.streaming.decoding import Decoding
from simultan.streaming.lags import Lags
from simultan.streaming.translator import Translator


@dataclass(frozen=True)
class Point:
    """One way to decode, and what came of it."""

    decoding: Decoding
    scores: Scores


def parse_points(texts: Sequence[str]) -> list[Decoding]:
    """Of "lag=3,4,5", "lag=3,4,beam=2" or "wait-k:3 agreement:2"; no point comes twice."""
    points: dict[Decoding, None] = {}
    for text in " ".join(texts).split():
        who, comma, beam = text.rpartition(",beam=")
        key, equals, values = (who if comma else text).partition("=")
        several = equals and key != "agent" and ":" not in text
        for value in values.split(",") if several else [values]:
            shown = f"{key}{equals}{value}"
            points[Decoding.parse(f"{shown},beam={beam}" if comma else shown)] = None
    if not points:
        raise ValueError("--at: which points? lag=3,4,5 or threshold=0.2,0.5 or wait-k:3 wait-k:5")
    return list(points)


def evaluate_curve(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    out: str | Path,
    decodings: Sequence[Decoding],
    scoring: Scoring = Scoring(),
    *,
    latencies: Sequence[str] = ("al",),
    rows: int = 32,
    progress: Callable[[int], None] | None = None,
) -> list[Point]:
    """Evaluate every point into a folder of its own below `out`, then write table and figure."""
    out = Path(out)
    for name in latencies:  # what is wrong is told before anything is translated
        latency.find_metric(name)
    for decoding in decodings:
        decoding.resolve(translator.model.policy, translator.lags)
    points = []
    for decoding in decodings:
        texts = sources, references, out / folder_name(decoding)
        scores = evaluate(translator, *texts, decoding, scoring, rows=rows, progress=progress)
        points.append(Point(decoding, scores))
    write_text(out / "curve.tsv", render_table(points))
    runs = [Run(scoring.system or out.resolve().name, point.scores.flat()) for point in points]
    draw_tradeoff(runs, out / "curve", latencies=latencies)
    return points


def folder_name(decoding: Decoding) -> str:
    """lag=4 -> lag-4, static:3,2 -> static-3-2."""
    return re.sub(r"[^\w.]+", "-", str(decoding)).strip("-.")


def render_table(points: Sequence[Point]) -> str:
    """Columns with a tab between them: the point, quality, and every latency."""
    rows = [["decoding", "bleu", "chrf", "length", *latency.METRICS]]
    for point in points:
        scores = point.scores
        values = [(score, 2) for score in (scores.bleu, scores.chrf, scores.length_ratio)]
        values += [(scores.latency[name], m.decimals) for name, m in latency.METRICS.items()]
        cells = ["" if value is None else f"{value:.{digits}f}" for value, digits in values]
        rows.append([str(point.decoding), *cells])
    return "".join("\t".join(row) + "\n" for row in rows)


def measure_lags(translator: Translator, points: Sequence[Point]) -> Lags:
    """How far behind the model stays at which threshold, as these points show it; from then on it
    is searched with as many beams as they were, unless a caller says otherwise."""
    if not translator.model.policy.learned:
        name = translator.model.policy.name
        raise ValueError(f"--save-lags: a threshold means nothing to this model, which is {name}")
    measured, beams = [], set()
    for point in points:
        chosen = point.decoding.resolve(translator.model.policy, translator.lags)
        behind = point.scores.latency["al"]
        if chosen.threshold is not None and behind is not None:
            measured.append((chosen.threshold, round(behind, 3)))
            beams.add(chosen.beam)
    if len(beams) > 1:
        raise ValueError("--save-lags: all points with as many beams: --beam 2")
    lags = Lags.of(measured, next(iter(beams), None))
    if len(lags.points) < 2:
        raise ValueError(
            "--save-lags: at least two thresholds, of which the higher one stays further behind:"
            " --at threshold=0.1,0.3,0.5,0.7,0.9"
        )
    return lags
