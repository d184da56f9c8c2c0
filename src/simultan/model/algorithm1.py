"""Algorithm 1 of the paper: monotonic multihead decoding, for many rows at once.

A step that is blocked in a layer keeps its place: heads that have stopped stay stopped, and the
next source word costs a scan of its keys, not another pass through the decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from simultan.model import undecided
from simultan.model.attention import MonotonicAttention
from simultan.model.policy import energy_limit
from simultan.model.state import Pending, State, Step, table

if TYPE_CHECKING:
    from simultan.model.translation import TranslationModel


def listing(p_choose: list[list[list[list[float]]]]) -> tuple[list[str], list[list[list[int]]]]:
    """Algorithm 1 as it is printed, over p_choose[i][l][h][j] that are known: for tests.

    The actions READ and WRITE, and where the heads stop, [i][l][h].
    """
    source = len(p_choose[0][0][0])
    t = [[0] * len(heads) for heads in p_choose[0]]
    actions = ["READ"]  # the first token
    read, stops = 1, []
    for i in range(len(p_choose)):
        for layer, heads in enumerate(p_choose[i]):
            for h, p in enumerate(heads):
                for j in range(t[layer][h], source):
                    if j >= read:
                        actions.append("READ")
                        read = j + 1
                    if p[j] > 0.5 or j == source - 1:
                        t[layer][h] = j
                        break
        stops.append([list(heads) for heads in t])
        actions.append("WRITE")
    return actions, stops


def step(
    model: TranslationModel,
    tokens: Sequence[int],
    state: State,
    rows: Sequence[int],
    threshold: Sequence[float],
    *,
    mass: Sequence[float | None] | None = None,
    attention: bool = False,
) -> Step:
    """Lines 2 to 17 of the listing: one target token of each row, as far as its heads let it come.

    tokens[r] is the last token written in row rows[r]. Rows in the result have decided to write.
    A row whose heads want a source token that has not been read is left pending: READ. Nothing is
    committed. `mass`: heads of rows that have one stay undecided, and need no threshold; see
    undecided.py. `attention`, for fixed policies: the result has the weights over the source.
    """
    if attention and model.policy.learned:
        raise ValueError(f"attention: not of a model whose policy, {model.policy.name}, learns")
    limits = {r: energy_limit(t, model.spread) for r, t in zip(rows, threshold, strict=True)}
    masses = {row: m for row, m in zip(rows, mass or (), strict=False) if m is not None}
    last = dict(zip(rows, tokens, strict=True))
    for row in rows:
        if state.pending[row] and (state.spread[row] is None) == (row in masses):
            state.pending[row] = None  # it stops in another way from now on: the step begins again
    active = [
        row
        for row in rows
        if state.pending[row] is None and _begin(model, state, row, row in masses)
    ]
    nothing = model.output.weight.detach()[:0]
    x = model.begin([last[row] for row in active], active, state) if active else nothing
    queries = found = x
    weights: list[Tensor] = []
    for layer, cross in enumerate(model.cross_attentions()):
        if active:
            x = model.look_back(layer, x, active, state)
            queries = model.queries(layer, x)
        if cross.selecting_heads:
            stopped = [[False] * cross.selecting_heads for _ in active]
            x, queries = _resume(layer, rows, active, x, queries, stopped, state)
            if active:
                if masses:
                    _find_both(layer, cross, queries, active, stopped, limits, masses, state)
                else:
                    _find_stops(layer, cross, queries, active, stopped, limits, state)
                x, queries = _suspend(layer, active, x, queries, stopped, state)
        if not active:
            continue
        deciding = layer if model.policy.every_head else 0
        if any(state.spread[row] for row in active):
            found = _read_both(layer, cross, queries, active, deciding, state)
        else:
            stops = [state.stops[row][deciding] for row in active]
            found, weight = cross.read(queries, state.source, layer, active, stops, attention)
            if weight is not None:
                weights.append(weight)
        x = model.look_at(layer, x, found)
        state.evaluations += len(active)
    if not active:
        no_logits = nothing.new_zeros(0, model.output.out_features)
        return Step([], no_logits, nothing, table([], state, nothing))
    hidden = model.end(x)
    positions = table([state.stops[row] for row in active], state, x)
    seen = torch.stack(weights, 1) if weights else None
    context = model.cross_attentions()[-1].output(found) if attention else None
    return Step(active, model.project(hidden), hidden, positions, seen, context)


def _begin(model: TranslationModel, state: State, row: int, spread: bool) -> bool:
    """Where the row's heads start from; False: there is no source for this step yet."""
    first, available = state.scan_from[row], state.available[row]
    state.spread[row] = None
    if model.policy.learned:
        first = min(first, available - state.finished[row])  # no later than the end
        if spread:
            undecided.begin(state, row, first)
        else:
            state.stops[row] = [[max(t, first) for t in heads] for heads in state.positions[row]]
        return available > 0
    lag, limit = state.lags[row], state.limits[row]
    stop = max(state.positions[row][0][0], first, state.length[row] + lag - 1) if lag else available
    if limit is not None:
        stop = limit - 1
    if state.finished[row]:
        stop = min(stop, available - 1)
    state.stops[row] = [[stop]]
    return stop < available


def _resume(
    layer: int,
    rows: Sequence[int],
    active: list[int],
    x: Tensor,
    queries: Tensor,
    stopped: list[list[bool]],
    state: State,
) -> tuple[Tensor, Tensor]:
    """Rows that have waited in this layer join those that are active."""
    waiting = [(row, p) for row in rows if (p := state.pending[row]) and p.layer == layer]
    if not waiting:
        return x, queries
    hidden = [pending.hidden for _, pending in waiting]
    asked = [pending.queries for _, pending in waiting]
    if active:
        hidden, asked = [*x.unbind(), *hidden], [*queries.unbind(), *asked]
    for row, pending in waiting:
        active.append(row)
        stopped.append(pending.stopped)
        state.pending[row] = None
    return torch.stack(hidden), torch.stack(asked)


def _split(rows: list[int], state: State) -> tuple[list[int], list[int]]:
    """Places of the rows that stop by a threshold, and of those that stay undecided."""
    sure = [i for i, row in enumerate(rows) if state.spread[row] is None]
    return sure, [i for i, row in enumerate(rows) if state.spread[row] is not None]


def _find_both(
    layer: int,
    cross: MonotonicAttention,
    queries: Tensor,
    rows: list[int],
    stopped: list[list[bool]],
    limits: dict[int, float],
    masses: dict[int, float],
    state: State,
) -> None:
    """Some rows stop by a threshold, some by a mass."""
    sure, open_ = _split(rows, state)
    if sure:
        some = [rows[i] for i in sure], [stopped[i] for i in sure]
        _find_stops(layer, cross, queries[sure], *some, limits, state)
    if open_:
        some = [rows[i] for i in open_], [stopped[i] for i in open_]
        undecided.find_stops(layer, cross, queries[open_], *some, masses, state)


def _read_both(
    layer: int,
    cross: MonotonicAttention,
    queries: Tensor,
    rows: list[int],
    deciding: int,
    state: State,
) -> Tensor:
    """What some rows find where they have stopped, and others where they may stop."""
    sure, open_ = _split(rows, state)
    found = {
        i: undecided.read(cross, queries[i : i + 1], state, layer, rows[i], deciding) for i in open_
    }
    if sure:
        some = [rows[i] for i in sure]
        stops = [state.stops[row][deciding] for row in some]
        read, _ = cross.read(queries[sure], state.source, layer, some, stops, False)
        found |= dict(zip(sure, read.split(1), strict=True))
    return torch.cat([found[i] for i in range(len(rows))])


def _find_stops(
    layer: int,
    cross: MonotonicAttention,
    queries: Tensor,
    rows: list[int],
    stopped: list[list[bool]],
    limits: dict[int, float],
    state: State,
) -> None:
    """Lines 5 to 15: each head moves on to the first token that it chooses, if it has been read."""
    assert state.selection is not None
    ends = [state.available[row] for row in rows]
    places = [state.stops[row][layer] for row in rows]
    begins = [  # a head that has stopped looks at nothing
        [end if done else min(t, end) for t, done in zip(heads, flags, strict=True)]
        for heads, flags, end in zip(places, stopped, ends, strict=True)
    ]
    chosen = cross.first_chosen(
        queries, state.selection, layer, rows, begins, ends, [limits[row] for row in rows]
    )
    for row, end, heads, flags, found in zip(rows, ends, places, stopped, chosen, strict=True):
        for h, t in enumerate(found):
            if flags[h]:
                continue
            if t < end:
                heads[h], flags[h] = t, True
            elif state.finished[row]:  # the last token of a source that has ended stops every head
                heads[h], flags[h] = end - 1, True
            else:
                heads[h] = max(heads[h], end)


def _suspend(
    layer: int,
    active: list[int],
    x: Tensor,
    queries: Tensor,
    stopped: list[list[bool]],
    state: State,
) -> tuple[Tensor, Tensor]:
    """Rows that have a head which still looks for its stop wait in this layer."""
    through = []
    for i, (row, flags) in enumerate(zip(active, stopped, strict=True)):
        if all(flags):
            through.append(i)
        else:
            state.pending[row] = Pending(layer, x[i], queries[i], flags)
    if len(through) < len(active):
        active[:] = [active[i] for i in through]
        return x[through], queries[through]
    return x, queries
