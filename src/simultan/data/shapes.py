"""A bounded set of batch shapes, chosen from the corpus's lengths for little padding.

Compiled code wants few shapes, padding wants many. The target rungs are the ladder that
minimises the padded target tokens (dynamic programming over the histogram of lengths); each
target rung then gets source rungs in the same way, the next one always where it saves most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[Any]


@dataclass(frozen=True)
class Shapes:
    """Shapes in ascending order of size; the last one holds every pair."""

    source: Ints  # [N] padded source length
    target: Ints  # [N] padded target length
    rows: Ints  # [N]
    overflow: Ints  # [N] the smallest larger shape that holds this one's pairs; -1 for the last
    step: int
    _table: Ints  # [target units, source units] -> the smallest shape that holds such a pair

    def __len__(self) -> int:
        return len(self.source)

    def of(self, source_lengths: Ints, target_lengths: Ints) -> Ints:
        """The shape of each pair."""
        return self._table[-(-target_lengths // self.step), -(-source_lengths // self.step)]


def choose_shapes(
    source_lengths: Ints,
    target_lengths: Ints,
    tokens: int,
    step: int,
    limit: int,
    longest: tuple[int, int],
) -> Shapes:
    """At most `limit` shapes for these pairs; the last one is `longest`, rounded up to the step."""
    sources, targets = -(-source_lengths // step), -(-target_lengths // step)
    tops = -(-longest[0] // step), -(-longest[1] // step)
    wanted = max(1, limit // 3)
    target_rungs = _ladders(np.bincount(targets, minlength=tops[1] + 1), wanted)[-1][1]
    rung_of = np.searchsorted(target_rungs, targets)
    choices = []  # for each target rung: (padded source tokens, rungs) with 1, 2, ... source rungs
    for number in range(len(target_rungs)):
        inside = sources[rung_of == number]
        # the last rung must hold any source; the others the longest they have seen
        top = tops[0] if number == len(target_rungs) - 1 else int(inside.max(initial=1))
        choices.append(_ladders(np.bincount(inside, minlength=top + 1), limit))
    taken = [0] * len(choices)
    for _ in range(limit - len(choices)):
        saved = [
            c[t][0] - c[t + 1][0] if t + 1 < len(c) else 0
            for c, t in zip(choices, taken, strict=True)
        ]
        best = int(np.argmax(saved))
        if saved[best] <= 0:
            break
        taken[best] += 1
    pairs = sorted(
        {
            (int(source) + int(target), int(target), int(source))
            for target, ladders, number in zip(target_rungs, choices, taken, strict=True)
            for source in ladders[number][1]
        }
    )
    source = np.array([pair[2] for pair in pairs])
    target = np.array([pair[1] for pair in pairs])
    table = np.empty((tops[1] + 1, tops[0] + 1), np.int64)
    for number in range(len(pairs) - 1, -1, -1):
        table[: target[number] + 1, : source[number] + 1] = number
    overflow = np.full(len(pairs), -1)
    for number in range(len(pairs) - 1):
        holds = (target >= target[number]) & (source >= source[number])
        overflow[number] = number + 1 + int(np.argmax(holds[number + 1 :]))
    rows = tokens // (np.maximum(source, target) * step)
    rows = np.where(rows >= 32, rows - rows % 8, np.maximum(rows, 1))
    return Shapes(source * step, target * step, rows, overflow, step, table)


def _ladders(histogram: Ints, most: int) -> list[tuple[int, Ints]]:
    """The best ladder with 1, 2, ... `most` rungs and its padded size; the last rung is the top.

    cost[k, j] = min over i < j of cost[k-1, i] + (lengths in (i, j]) * j
    """
    top = len(histogram) - 1
    seen = np.cumsum(histogram)
    edges = np.arange(top + 1)
    # [i, j]: padded size of the lengths in (i, j]; length 0 does not exist
    segment = (seen[None, :] - seen[:, None]) * edges[None, :]
    segment = np.where(edges[:, None] < edges[None, :], segment, np.iinfo(np.int64).max // 4)
    cost, back = segment[0], []
    result = [(int(cost[top]), np.array([top]))]
    while len(result) < min(most, top):
        both = cost[:, None] + segment
        back.append(both.argmin(0))
        cost = both.min(0)
        if cost[top] >= result[-1][0]:
            break
        rungs, edge = [top], top
        for previous in reversed(back):
            edge = int(previous[edge])
            rungs.append(edge)
        result.append((int(cost[top]), np.array(rungs[::-1])))
    return result
