"""A Transformer's stream of a single row: Python numbers instead of index tensors and masks.

The same computation as the methods for many rows, and on the same state; the tests hold it to
that. For one row the small operations around the matrices would cost as much as the matrices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from simultan.model.attention import MonotonicAttention, rotate
from simultan.model.policy import visible
from simultan.model.state import Cache, DecoderState, EncoderState, Step

if TYPE_CHECKING:
    from simultan.model.transformer import DecoderLayer, EncoderLayer, Residual, Transformer


@dataclass(frozen=True, slots=True)
class Span:
    """New positions of the row, in slots of the cache."""

    slot: int  # of the first new one
    count: int
    first: int  # the first slot that any of them sees
    hidden: Tensor | None  # [C, N] what they do not see from there on; None: they see all
    positions: Tensor | None  # [1, C] absolute, if attention rotates


def encode(model: Transformer, tokens: Tensor, row: int, state: EncoderState) -> Tensor:
    """New source tokens [C] -> their encodings [C, D]."""
    assert state.cache is not None
    start = state.length[row]
    span = _span(model, state.cache, row, start, len(tokens))
    x = model.source_embedding.at(tokens, start)
    for index, layer in enumerate(model.encoder_layers):
        x = _look_back(layer, x, state.cache.row(index, row), span)
        x = _feed_forward(layer, x)
    return _normalise(model.encoder_norm, x)


def step(model: Transformer, token: int, row: int, state: DecoderState, threshold: float) -> Step:
    """TranslationModel.step for one row."""
    blocked = Step([], state.hidden.new_zeros(0, model.output.out_features), state.trial[:0])
    waiting = state.layer[row]
    if waiting >= 0:
        x, asked = state.hidden[row : row + 1], state.query[row : row + 1]
        stopped = state.stopped[row].tolist()
    elif not state.available[row] or not (model.policy.learned or model.place_fixed(row, state)):
        return blocked
    else:
        tokens = torch.tensor([token], device=state.hidden.device)
        x = asked = model.target_embedding.at(tokens, state.length[row])
        stopped = []
    trial = _where_heads_stand(model, row, state)
    assert state.target is not None
    span = _span(model, state.target, row, state.length[row], 1)
    limit = math.log(threshold / (1 - threshold))
    layers = model.decoder_layers
    for index in range(max(0, waiting), len(layers)):
        layer = layers[index]
        cross = layer.cross
        if index != waiting:
            x = _look_back(layer, x, state.target.row(index, row), span)
            asked = cross.ask(_before(layer.cross_residual, x))
            stopped = [False] * cross.selecting_heads
        if cross.selecting_heads:
            _scan(cross, asked, index, row, state, trial[index], stopped, limit)
            if not all(stopped):
                _wait(index, row, state, x, asked, trial, stopped)
                return blocked
        stops = trial[index if model.policy.every_head else 0]
        base = state.source.base[row]
        context = _read(cross, asked, state.source.row(index, row), [at - base for at in stops])
        x = _after(layer.cross_residual, x, cross.output_map(context))
        x = _feed_forward(layer, x)
        state.evaluations += 1
    state.layer[row] = -1
    positions = torch.tensor([trial], device=x.device)
    state.trial[row] = positions[0]
    return Step([row], model.project(_normalise(model.decoder_norm, x)), positions)


def _where_heads_stand(model: Transformer, row: int, state: DecoderState) -> list[list[int]]:
    """[L, H]: as far as this step has come, or where they scan from."""
    trial = state.trial[row].tolist()
    if not model.policy.learned:
        return trial
    known, floor = state.layer[row] + 1, state.floor[row]
    for index, heads in enumerate(state.positions[row, known:].tolist(), known):
        trial[index] = [max(at, floor) for at in heads]
    return trial


def _scan(
    cross: MonotonicAttention,
    asked: Tensor,
    index: int,
    row: int,
    state: DecoderState,
    trial: list[int],
    stopped: list[bool],
    limit: float,
) -> None:
    """policy.scan: moves the heads of one layer that have not stopped."""
    assert state.selection is not None
    available = state.available[row]
    first = min(at for at, done in zip(trial, stopped, strict=True) if not done)
    count = available - first
    if count <= 0:
        return
    keys = state.selection.row(index, row)[0].narrow(1, first - state.selection.base[row], count)
    energy = cross.energy(cross.selection(asked)[0], keys).flatten(1).tolist()
    for head, values in enumerate(energy):
        if stopped[head]:
            continue
        at = trial[head] - first
        while at < count and values[at] <= limit:
            at += 1
        if at >= count and state.finished[row]:
            at = count - 1
        trial[head], stopped[head] = first + at, at < count


def _wait(
    index: int,
    row: int,
    state: DecoderState,
    x: Tensor,
    asked: Tensor,
    trial: list[list[int]],
    stopped: list[bool],
) -> None:
    """Keep the step's place."""
    if state.layer[row] != index:
        state.layer[row] = index
        state.hidden[row], state.query[row] = x[0], asked[0]
    state.trial[row] = torch.tensor(trial, device=x.device)
    state.stopped[row] = torch.tensor(stopped, device=x.device)


def _read(cross: MonotonicAttention, asked: Tensor, source: Tensor, stops: list[int]) -> Tensor:
    """Attention over the source [K, H, N, D] up to each head's stop -> [1, D]."""
    heads, lookback = cross.heads, cross.policy.lookback
    low, last = min(stops), max(stops)
    if not cross.soft:
        if low == last:
            return source[0, :, low].reshape(1, -1)
        index = torch.arange(heads, device=source.device)
        return source[0][index, torch.tensor(stops, device=source.device)].view(1, -1)
    first = 0 if lookback is None else max(0, low - lookback + 1)
    hidden = None
    if low != last:
        at = torch.tensor(stops, device=source.device).view(-1, 1, 1)
        positions = torch.arange(first, last + 1, device=source.device)
        hidden = positions > at
        if lookback is not None:
            hidden |= positions <= at - lookback
    query = asked[0, cross.select_width :].view(heads, 1, -1)
    seen = source.narrow(2, first, last + 1 - first)
    return _attend(query, seen, hidden).view(1, -1)


def _attend(query: Tensor, cached: Tensor, hidden: Tensor | None) -> Tensor:
    """query [H, C, D] over keys and values [2, H, N, D] -> [H, C, D]"""
    keys, values = cached.unbind(0)
    scores = torch.bmm(query * (1.0 / math.sqrt(query.shape[-1])), keys.transpose(1, 2))
    if hidden is not None:
        scores.masked_fill_(hidden, -torch.inf)
    return torch.bmm(torch.softmax(scores, -1), values)


def _span(model: Transformer, cache: Cache, row: int, start: int, count: int) -> Span:
    """Room in the cache for new positions, and what they see."""
    window = model.window
    oldest = max(0, start - window + 1) if window else 0
    if start + count - cache.base[row] > cache.capacity:
        cache.reserve([row], [start + count], lambda _: oldest)
    slot = start - cache.base[row]
    first = oldest - cache.base[row] if window else 0
    device, hidden, positions = cache.data.device, None, None
    if count > 1:
        new = torch.arange(slot - first, slot - first + count, device=device)
        hidden = ~visible(new, slot - first + count, window or None)
    if model.rotary:
        positions = torch.arange(start, start + count, device=device)[None]
    return Span(slot, count, first, hidden, positions)


def _look_back(layer: EncoderLayer | DecoderLayer, x: Tensor, cached: Tensor, span: Span) -> Tensor:
    """Self-attention of new positions x [C, D] over the cache [2, H, N, D]."""
    attention, residual, count = layer.attention, layer.attention_residual, span.count
    qkv = attention.qkv_map(_before(residual, x)).view(count, 3, attention.heads, -1)
    qkv = qkv.permute(1, 2, 0, 3)
    if span.positions is not None:
        qkv = torch.cat([rotate(qkv[:2], span.positions), qkv[2:]])
    cached.narrow(2, span.slot, count).copy_(qkv[1:])
    seen = cached.narrow(2, span.first, span.slot + count - span.first)
    context = _attend(qkv[0], seen, span.hidden).transpose(0, 1).reshape(count, -1)
    return _after(residual, x, attention.output_map(context))


def _feed_forward(layer: EncoderLayer | DecoderLayer, x: Tensor) -> Tensor:
    residual = layer.ffn_residual
    return _after(residual, x, layer.ffn.step(_before(residual, x)))


def _before(residual: Residual, x: Tensor) -> Tensor:
    return _normalise(residual.norm, x) if residual.pre else x


def _after(residual: Residual, x: Tensor, update: Tensor) -> Tensor:
    x = update.add_(x)
    return x if residual.pre else _normalise(residual.norm, x)


def _normalise(norm: nn.Module, x: Tensor) -> Tensor:
    if not isinstance(norm, nn.LayerNorm) or x.is_cuda:
        return norm(x)
    # the module's own call costs more than the operation
    return torch.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps, False)
