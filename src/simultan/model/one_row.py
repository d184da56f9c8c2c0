"""A Transformer's stream of a single row: Python numbers instead of index tensors and masks.

The same computation as the methods for many rows, and on the same state; the tests hold it to
that. Every weight is read once for a single token, which leaves the processor's caches empty:
the small operations between the matrices are dear, so there are as few of them as possible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simultan.model.attention import MonotonicAttention, rotate
from simultan.model.maps import Map
from simultan.model.policy import additive, energy_limit, visible
from simultan.model.state import Cache, DecoderState, EncoderState, Step

if TYPE_CHECKING:
    from simultan.model.transformer import DecoderLayer, EncoderLayer, Transformer

_MASK = 512  # source tokens; the masks of shorter sources are kept
Norm = tuple[Any, ...]  # the arguments of torch.layer_norm after x


@dataclass(frozen=True, slots=True)
class Block:
    """What a step needs of a layer: looking it up in modules takes time, too."""

    pre: bool
    heads: int
    norm: Norm
    qkv: Map
    output: Map
    ffn_norm: Norm
    inner: Map
    outer: Map
    cross: MonotonicAttention | None  # of a decoder
    cross_norm: Norm
    energy_bias: Tensor | None
    scale: float  # of energies


@dataclass(frozen=True, slots=True)
class Span:
    """New positions of the row, in slots of the cache."""

    slot: int  # of the first new one
    count: int
    first: int  # the first slot that any of them sees
    mask: Tensor | None  # [C, N] 0 or -inf from there on; None: they see all
    positions: Tensor | None  # [1, C] absolute, if attention rotates


def encoder_blocks(layers: Sequence[EncoderLayer]) -> list[Block]:
    """An encoder as it is now."""
    return [_block(layer, None, ()) for layer in layers]


def decoder_blocks(layers: Sequence[DecoderLayer]) -> list[Block]:
    """A decoder as it is now."""
    return [_block(layer, layer.cross, _norm(layer.cross_residual.norm)) for layer in layers]


def _block(
    layer: EncoderLayer | DecoderLayer, cross: MonotonicAttention | None, cross_norm: Norm
) -> Block:
    attention, ffn = layer.attention, layer.ffn
    bias = None if cross is None else cross.energy_bias
    return Block(
        pre=layer.attention_residual.pre,
        heads=attention.heads,
        norm=_norm(layer.attention_residual.norm),
        qkv=attention.qkv_map,
        output=attention.output_map,
        ffn_norm=_norm(layer.ffn_residual.norm),
        inner=ffn.inner_map,
        outer=ffn.outer_map,
        cross=cross,
        cross_norm=cross_norm,
        energy_bias=None if bias is None else bias.detach(),
        scale=1.0 / math.sqrt(ffn.outer.out_features // attention.heads),
    )


def _norm(norm: nn.LayerNorm) -> Norm:
    return norm.normalized_shape, norm.weight.detach(), norm.bias.detach(), norm.eps, False


def _normalise(norm: nn.Module, x: Tensor) -> Tensor:
    """The module's own call costs more than the operation."""
    return torch.layer_norm(x, *_norm(norm)) if isinstance(norm, nn.LayerNorm) else norm(x)


def encode(model: Transformer, tokens: Tensor, row: int, start: int, state: EncoderState) -> Tensor:
    """New source tokens [C] of a row, from this position on -> their encodings [C, D]."""
    assert state.cache is not None
    span = _span(model, state.cache, row, start, len(tokens))
    x = model.source_embedding.at(tokens, start)
    for index, block in enumerate(state.blocks):
        x = _look_back(block, x, state.cache.row(index, row), span)
        x = feed_forward(block, x)
    return _normalise(model.encoder_norm, x)


def step(model: Transformer, token: int, row: int, state: DecoderState, threshold: float) -> Step:
    """TranslationModel.step for one row."""
    waiting = state.layer[row]
    if waiting >= 0:
        x, asked = state.hidden[row : row + 1], state.query[row : row + 1]
        stopped = state.stopped[row].tolist()
    elif not state.available[row] or not (model.policy.learned or model.place_fixed(row, state)):
        return Step([], state.nothing, state.hidden[:0], state.trial[:0])
    else:
        tokens = torch.tensor([token], device=state.hidden.device)
        x = asked = model.target_embedding.at(tokens, state.length[row])
        stopped = []
    trial = _where_heads_stand(model, row, state)
    target, source = state.target, state.source
    assert target is not None
    span = _span(model, target, row, state.length[row], 1)
    base, limit = source.base[row], energy_limit(threshold, model.spread)
    for index in range(max(0, waiting), len(state.blocks)):
        block = state.blocks[index]
        cross = block.cross
        assert cross is not None
        if index != waiting:
            x = _look_back(block, x, target.row(index, row), span)
            asked = cross.ask(torch.layer_norm(x, *block.cross_norm) if block.pre else x)
            stopped = [False] * cross.selecting_heads
        if cross.selecting_heads:
            _scan(block, asked, index, row, state, trial[index], stopped, limit)
            if not all(stopped):
                _wait(index, row, state, x, asked, trial, stopped)
                return Step([], state.nothing, state.hidden[:0], state.trial[:0])
        stops = trial[index if model.policy.every_head else 0]
        context = _read(cross, asked, source.row(index, row), [at - base for at in stops])
        x = cross.output_map(context).add_(x)
        if not block.pre:
            x = torch.layer_norm(x, *block.cross_norm)
        x = feed_forward(block, x)
        state.evaluations += 1
    state.layer[row] = -1
    positions = torch.tensor([trial], device=x.device)
    state.trial[row] = positions[0]
    x = _normalise(model.decoder_norm, x)
    return Step([row], model.project(x), x, positions)


def _where_heads_stand(model: Transformer, row: int, state: DecoderState) -> list[list[int]]:
    """[L, H]: as far as this step has come, or where they scan from."""
    known, floor = state.layer[row] + 1, state.floor[row]
    if not model.policy.learned:
        return state.trial[row].tolist()
    trial = state.trial[row].tolist()[:known] if known else []
    committed = state.positions[row].tolist()[known:]
    return trial + [[max(at, floor) for at in heads] for heads in committed]


def _scan(
    block: Block,
    asked: Tensor,
    index: int,
    row: int,
    state: DecoderState,
    trial: list[int],
    stopped: list[bool],
    limit: float,
) -> None:
    """policy.scan: moves the heads of one layer that have not stopped."""
    cross, selection = block.cross, state.selection
    assert cross is not None
    assert selection is not None
    first = min(at for at, done in zip(trial, stopped, strict=True) if not done)
    count = state.available[row] - first
    if count <= 0:
        return
    keys = selection.row(index, row)[0, 0].narrow(1, first - selection.base[row], count)
    query = asked[0, : cross.select_width].view(cross.selecting_heads, 1, -1)
    if cross.energy_gain is None and block.energy_bias is not None:
        scale = block.scale
        energy = torch.baddbmm(block.energy_bias, query, keys.transpose(1, 2), alpha=scale).tolist()
    else:
        energy = cross.energy(query, keys).tolist()
    for head, (values,) in enumerate(energy):
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
    """Attention over the source [K, 1, H, N, D] up to each head's stop -> [1, D]."""
    heads, lookback, device = cross.heads, cross.policy.lookback, source.device
    low, last = min(stops), max(stops)
    if not cross.soft:
        if low == last:
            return source[0, 0, :, low].reshape(1, -1)
        values = source[0, 0][
            torch.arange(heads, device=device), torch.tensor(stops, device=device)
        ]
        return values.view(1, -1)
    first = 0 if lookback is None else max(0, low - lookback + 1)
    count = last + 1 - first
    mask = None
    if low != last:
        # not on a GPU, whose attention kernels want masks that begin on 16 bytes
        if lookback is None and count <= _MASK and device.type == "cpu":
            mask = _mask(tuple([last - at for at in stops]), asked.dtype, device)
            mask = mask.narrow(3, _MASK - count, count)
        else:
            seen = visible(torch.tensor(stops, device=device) - first, count, lookback)
            mask = additive(seen, asked).view(1, heads, 1, count)
    query = asked[0, cross.select_width :].view(1, heads, 1, -1)
    keys, values = source.narrow(3, first, count).unbind(0)
    return F.scaled_dot_product_attention(query, keys, values, mask).view(1, -1)


@lru_cache(maxsize=256)
def _mask(short: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """[1, H, 1, N]: head h does not see the last short[h] of N tokens."""
    stops = _MASK - 1 - torch.tensor(short, device=device)
    like = torch.empty(0, dtype=dtype, device=device)
    return additive(visible(stops, _MASK, None), like).view(1, len(short), 1, _MASK)


def _span(model: Transformer, cache: Cache, row: int, start: int, count: int) -> Span:
    """Room in the cache for new positions, and what they see."""
    window = model.window
    oldest = max(0, start - window + 1) if window else 0
    if start + count - cache.base[row] > cache.capacity:
        cache.reserve([row], [start + count], lambda _: oldest)
    slot = start - cache.base[row]
    first = oldest - cache.base[row] if window else 0
    device, mask, positions = cache.data.device, None, None
    if count > 1:
        new = torch.arange(slot - first, slot - first + count, device=device)
        mask = additive(visible(new, slot - first + count, window or None), cache.data)
    if model.rotary:
        positions = torch.arange(start, start + count, device=device)[None]
    return Span(slot, count, first, mask, positions)


def _look_back(block: Block, x: Tensor, cached: Tensor, span: Span) -> Tensor:
    """Self-attention of new positions x [C, D] over the cache [2, 1, H, N, D]."""
    count = span.count
    qkv = block.qkv(torch.layer_norm(x, *block.norm) if block.pre else x)
    if count == 1:
        qkv = qkv.view(3, 1, block.heads, 1, -1)
    else:
        qkv = qkv.view(1, count, 3, block.heads, -1).permute(2, 0, 3, 1, 4)
    if span.positions is not None:
        turned = rotate(qkv[:2].flatten(0, 1), span.positions).view_as(qkv[:2])
        qkv = torch.cat([turned, qkv[2:]])
    cached.narrow(3, span.slot, count).copy_(qkv[1:])
    keys, values = cached.narrow(3, span.first, span.slot + count - span.first).unbind(0)
    context = F.scaled_dot_product_attention(qkv[0], keys, values, span.mask)
    if count > 1:
        context = context.transpose(1, 2)
    x = block.output(context.reshape(count, -1)).add_(x)
    return x if block.pre else torch.layer_norm(x, *block.norm)


def feed_forward(block: Block, x: Tensor) -> Tensor:
    """x [R, D], of any number of rows."""
    y = block.inner.relu(torch.layer_norm(x, *block.ffn_norm) if block.pre else x)
    x = block.outer.plus(y, x)
    return x if block.pre else torch.layer_norm(x, *block.ffn_norm)
