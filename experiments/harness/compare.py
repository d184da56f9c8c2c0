"""Paired bootstrap over stored predictions: is a difference more than chance?

The same resampled sentences score both systems of a pair.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

from simultan.data.sources import read_lines
from simultan.evaluation.instances import read_log

__all__ = ["compare", "find_text"]

DRAWS = 2_000


def find_text(folder: Path, names: Iterable[str]) -> list[str]:
    """The lines of the first of these files that a folder has, plain or compressed."""
    files = [folder / f"{name}{end}" for name in names for end in ("", ".xz", ".gz")]
    for file in files:
        if file.is_file():
            return list(read_lines(file))
    raise FileNotFoundError(f"{folder}: no {' or '.join(names)}, plain, .xz or .gz")


def compare(
    folder: Path,
    pairs: Iterable[tuple[str, str, str | Mapping[str, float]]],
    references: Sequence[str],
    bleu: BLEU,
    draws: int = DRAWS,
) -> None:
    """Write comparisons.json: for each claim, one run and another, the difference and its interval.

    The other may be a point on the line between two: their names with shares that sum to 1. Runs
    whose predictions are not there are left out.
    """
    random = np.random.default_rng(1)
    drawn = random.integers(len(references), size=(draws, len(references)))
    counts = np.stack([np.bincount(draw, minlength=len(references)) for draw in drawn])
    scores: dict[str, tuple[float, NDArray[np.float64]]] = {}

    def measured(name: str) -> tuple[float, NDArray[np.float64]]:
        if name not in scores:
            log = read_log(_predictions(folder, name))
            table = np.array(
                bleu._extract_corpus_statistics([i.prediction for i in log], [references])
            )
            whole = bleu._compute_score_from_stats(table.sum(0).tolist()).score
            many = [
                bleu._compute_score_from_stats([int(x) for x in row]).score
                for row in counts @ table
            ]
            scores[name] = whole, np.array(many)
        return scores[name]

    found = []
    for claim, one, mix in pairs:
        shares = {mix: 1.0} if isinstance(mix, str) else mix
        other = " and ".join(shares)
        missing = [name for name in (one, *shares) if not _predictions(folder, name).is_file()]
        if missing:
            print(f"{one} and {other}: no predictions of {missing[0]}")
            continue
        first, many = measured(one)
        second = sum(share * measured(name)[0] for name, share in shares.items())
        others = sum(share * measured(name)[1] for name, share in shares.items())
        low, high = np.percentile(many - others, [2.5, 97.5])
        found.append(
            {"claim": claim, "one": one, "other": other, "difference": round(first - second, 3),
             "low": round(float(low), 3), "high": round(float(high), 3)}
        )  # fmt: skip
        print(f"{one:36} {other:36} {first - second:+.2f} [{low:+.2f}, {high:+.2f}]")
    text = json.dumps(found, indent=1) + "\n"
    (folder / "comparisons.json").write_text(text, encoding="utf-8")


def _predictions(folder: Path, name: str) -> Path:
    return folder / "predictions" / f"{name}.jsonl.xz"
