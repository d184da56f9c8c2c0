"""Streams in which heads attend as they do in training: over all tokens where they may stop.

A threshold makes one stop of an alignment that training leaves spread over several tokens. But

    q[j] = (1 - p[j-1]) q[j-1] + alpha_before[j],   alpha[j] = p[j] q[j]

needs no token after j. So a stream can go on as training does: a head reads until it has stopped
with probability `mass` and attends with what is known of alpha by then, scaled to 1. What is
missing stops later: for the next target token it waits at the first token that was not read. A
stop is an alignment of one token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from simultan.model.attention import MonotonicAttention
from simultan.model.policy import lookback_start, p_choose
from simultan.model.state import State
from simultan.ops import expected_attention

TINY = 1e-7  # a share of an alignment that is not worth keeping


def align(
    before: Sequence[float], p: Sequence[float], mass: float, ended: bool = False
) -> list[float] | None:
    """The alignment after `before`, and p from its first token on; None: more source is needed.

    It ends where its sum reaches `mass`, but not before `before` does: that much has been read.
    What is missing of either to 1 stops later, after its last token.
    `ended`: p has the last token of the source.
    """
    shares, left, total = [], 0.0, 0.0
    for j, chance in enumerate(p):
        if j < len(before):
            left += before[j]
        if j == len(before) or (ended and j == len(p) - 1 < len(before)):
            left = 1.0 - total  # all that has not stopped
        shares.append(chance * left)
        total += shares[-1]
        left -= shares[-1]
        if total >= mass and j >= len(before) - 1:
            return shares
    return shares if ended else None


def scaled(shares: Sequence[float]) -> list[float]:
    """To a sum of 1: what is attended to is what has been read."""
    total = math.fsum(shares)
    return [share / total for share in shares]


def trim(shares: list[float]) -> list[float]:
    """Without what is next to nothing at its beginning."""
    least = TINY * math.fsum(shares)  # of a small mass all shares are small
    first = next(j for j, share in enumerate(shares) if share > least)
    return shares[first:]


def begin(state: State, row: int, first: int) -> None:
    """Where the row's heads are, before they move on; none before the token `first`."""
    shares = state.shares[row] or [[[1.0] for _ in heads] for heads in state.positions[row]]
    placed = [
        [moved(stop, some, first) for stop, some in zip(*layer, strict=True)]
        for layer in zip(state.positions[row], shares, strict=True)
    ]
    state.stops[row] = [[stop for stop, _ in layer] for layer in placed]
    state.spread[row] = [[some for _, some in layer] for layer in placed]


def moved(stop: int, shares: list[float], first: int) -> tuple[int, list[float]]:
    """The same alignment, with nothing before this token."""
    gone = first - (stop + 1 - len(shares))
    if gone <= 0:
        return stop, shares
    if first > stop:
        return first, [1.0]
    return stop, [math.fsum(shares[: gone + 1]), *shares[gone + 1 :]]


def find_stops(
    layer: int,
    cross: MonotonicAttention,
    queries: Tensor,
    rows: list[int],
    stopped: list[list[bool]],
    masses: Mapping[int, float],
    state: State,
) -> None:
    """As Algorithm 1's, but each head moves on to where it has stopped with probability `mass`."""
    assert state.selection is not None
    ends = [state.available[row] for row in rows]
    places = [state.stops[row][layer] for row in rows]
    alphas = [state.shares_of(row)[layer] for row in rows]
    begins = [
        [stop + 1 - len(shares) for stop, shares in zip(at, alpha, strict=True)]
        for at, alpha in zip(places, alphas, strict=True)
    ]
    firsts = [min(at) for at in begins]
    count = max(end - first for end, first in zip(ends, firsts, strict=True))
    slots = [first - state.selection.base[row] for row, first in zip(rows, firsts, strict=True)]
    slots = [min(slot, state.selection.capacity - count) for slot in slots]
    energy = cross.energies(queries, state.selection, layer, rows, slots, count)
    firsts = [slot + state.selection.base[row] for row, slot in zip(rows, slots, strict=True)]
    lengths = [  # p is 1 at the last token of a source that has ended
        end - first if state.finished[row] else count + 1
        for row, end, first in zip(rows, ends, firsts, strict=True)
    ]
    known = torch.tensor(lengths, device=energy.device)
    p = p_choose(energy.unsqueeze(2), known, 0.0, cross.spread).squeeze(2).tolist()
    for r, row in enumerate(rows):
        for h, begin in enumerate(begins[r]):
            if stopped[r][h]:
                continue
            chances = p[r][h][begin - firsts[r] : ends[r] - firsts[r]]
            found = align(alphas[r][h], chances, masses[row], state.finished[row])
            if found is not None:
                places[r][h], alphas[r][h] = begin + len(found) - 1, trim(found)
                stopped[r][h] = True


def read(
    cross: MonotonicAttention,
    query: Tensor,
    state: State,
    layer: int,
    row: int,
    deciding: int,
) -> Tensor:
    """Attend from one target token of a row, query [1, Q], by the alignments of the deciding layer
    -> [1, D], to go through `output`. One row at a time: no bit depends on the others."""
    source, heads, lookback = state.source, cross.heads, cross.policy.lookback
    ends = [stop + 1 - source.base[row] for stop in state.stops[row][deciding]]
    alphas = state.shares_of(row)[deciding]
    starts = [end - len(shares) for end, shares in zip(ends, alphas, strict=True)]
    first, last = lookback_start(min(starts), lookback), max(ends)
    table = [
        [*[0.0] * (start - first), *scaled(shares), *[0.0] * (last - end)]
        for start, shares, end in zip(starts, alphas, ends, strict=True)
    ]
    keys_values = source.read(layer, [row], [first], last - first)
    value = keys_values.select(2, -1)  # [1, N, H, D]
    beta = value.new_tensor([table]).expand(-1, heads, -1)
    if cross.soft:
        asked = query.narrow(1, cross.select_width, heads * value.shape[-1])
        asked = asked.view(1, 1, heads, -1) * (1.0 / math.sqrt(value.shape[-1]))
        energy = (keys_values.select(2, 0) * asked).sum(-1).transpose(1, 2)  # [1, H, N]
        whole = torch.tensor([last - first], device=value.device)
        beta = expected_attention(
            beta.unsqueeze(2), energy.unsqueeze(2), whole, lookback=lookback
        ).squeeze(2)
    return (value * beta.transpose(1, 2).unsqueeze(-1)).sum(1).flatten(1)
