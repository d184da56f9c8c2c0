"""How many words behind a model stays at each threshold; measured, in lags.json in its folder.

The file is {"beam": 2, "points": [[threshold, lag], ...]}, or the points alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from simultan.streaming.decoding import MOST_BEAMS

__all__ = ["UNMEASURED", "Lags"]


@dataclass(frozen=True)
class Lags:
    """A threshold means something different for every model; words behind mean the same."""

    points: tuple[tuple[float, float], ...] = ()  # threshold, AL in words; both rise
    beam: int | None = None  # with which they were measured, and which the model has by default

    def __post_init__(self) -> None:
        if self.beam is not None and not (type(self.beam) is int and 0 < self.beam <= MOST_BEAMS):
            raise ValueError(f"beam {self.beam} must be a whole number from 1 to {MOST_BEAMS}")
        for (low, sooner), (high, later) in pairwise(self.points):
            if not (0 < low < high < 1 and sooner < later):
                raise ValueError(f"thresholds {low}, {high} and lags {sooner}, {later} must rise")

    @classmethod
    def load(cls, folder: str | Path) -> Lags:
        """Read lags.json in a model's folder; without the file there are no points."""
        path = Path(folder) / "lags.json"
        if not path.exists():
            return cls()
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            beam = found.get("beam") if isinstance(found, dict) else None
            points = found["points"] if isinstance(found, dict) else found
            return cls(tuple((float(threshold), float(lag)) for threshold, lag in points), beam)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: not pairs of threshold and lag, with or without a beam ({error})"
            ) from error

    @classmethod
    def of(cls, measured: Sequence[tuple[float, float]], beam: int | None = None) -> Lags:
        """Keep the measurements at which the lag rises with the threshold."""
        points: list[tuple[float, float]] = []
        for threshold, lag in sorted(measured):
            if not points or (threshold > points[-1][0] and lag > points[-1][1]):
                points.append((threshold, lag))
        return cls(tuple(points), beam)

    def save(self, folder: str | Path) -> None:
        points = [list(point) for point in self.points]
        text = json.dumps({"beam": self.beam, "points": points} if self.beam else points)
        (Path(folder) / "lags.json").write_text(text + "\n", encoding="utf-8")

    def threshold(self, lag: float) -> float:
        """The threshold at which the model stays about this many words behind."""
        if len(self.points) < 2:
            raise ValueError(
                f"lag={lag:g}: how far behind this model stays was not measured; choose a threshold"
            )
        lags = [point[1] for point in self.points]
        if not lags[0] <= lag <= lags[-1]:
            raise ValueError(f"lag={lag:g}: this model has {lags[0]:.1f} to {lags[-1]:.1f} words")
        log_odds = [math.log(threshold / (1 - threshold)) for threshold, _ in self.points]
        return float(1 / (1 + np.exp(-np.interp(lag, lags, log_odds))))

    def lag(self, threshold: float) -> float | None:
        """Words behind at this threshold, at most those measured; None: nothing was measured."""
        if len(self.points) < 2:
            return None
        log_odds = [math.log(at / (1 - at)) for at, _ in self.points]
        wanted = math.log(threshold / (1 - threshold))
        return round(float(np.interp(wanted, log_odds, [lag for _, lag in self.points])), 2)


UNMEASURED = Lags()
