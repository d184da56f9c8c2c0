"""A Transformer with a unidirectional encoder, whose decoder layers each read under a policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simultan.config import Config, ModelConfig
from simultan.data.batching import Batch
from simultan.data.vocabulary import BOS
from simultan.model import one_row
from simultan.model.attention import (
    MonotonicAttention,
    SelfAttention,
    attend,
    join_heads,
    rotate,
)
from simultan.model.dropout import Dropout
from simultan.model.maps import Make, Map, Mapped, Plain
from simultan.model.one_row import Block
from simultan.model.policy import Chance, additive, visible
from simultan.model.state import Cache, DecoderState, EncoderState, Place, State, Step
from simultan.model.translation import ModelOutput, TranslationModel


@dataclass(frozen=True)
class View:
    """New positions of some rows, and what they can see of the cache."""

    rows: list[int]
    starts: list[int]
    place: Place  # in the cache
    positions: Tensor  # [R, C], absolute
    mask: Tensor | None  # [R, 1, C, N] 0 or -inf
    slots: int  # N
    alone: bool  # nothing came before, nothing will come after: no need for a cache


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """[...] -> [..., D]; in double precision, so that a long stream's positions stay apart."""
    half = width // 2
    rates = torch.exp(
        torch.arange(half, device=positions.device, dtype=torch.float64)
        * (-math.log(10_000.0) / max(1, half - 1))
    )
    angles = positions[..., None].double() * rates
    return F.pad(torch.cat([angles.sin(), angles.cos()], -1), (0, width - 2 * half)).float()


class Embedding(nn.Module):
    """Tokens and, unless attention rotates, positions."""

    table: Tensor

    def __init__(self, model: ModelConfig, size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size, model.width)
        nn.init.normal_(self.tokens.weight, std=model.width**-0.5)
        self.scale = math.sqrt(model.width)
        self.dropout = Dropout(model.dropout)
        self.word_dropout = model.word_dropout
        self.positions = model.positions == "sinusoidal"
        table = sinusoids(torch.arange(1024), model.width) if self.positions else torch.zeros(0)
        self.register_buffer("table", table, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Whole sequences [B, N]."""
        x = self.tokens(tokens) * self.scale
        if self.training and self.word_dropout:
            drop = torch.rand(tokens.shape, device=x.device) < self.word_dropout
            x = x.masked_fill(drop[..., None], 0.0)
        if self.positions:
            count = tokens.shape[1]
            if count > len(self.table):
                table = sinusoids(torch.arange(count, device=x.device), x.shape[-1])
            else:
                table = self.table[:count]
            x = x + table
        if torch.is_autocast_enabled(x.device.type):  # the residual stream, too, is narrow
            x = x.to(torch.get_autocast_dtype(x.device.type))
        return self.dropout(x)

    def step(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """New tokens [R, C] at their absolute positions [R, C]."""
        x = self.tokens(tokens) * self.scale
        if self.positions:
            known = int(positions.max()) < len(self.table)
            x = x + (self.table[positions] if known else sinusoids(positions, x.shape[-1]))
        return x

    def at(self, tokens: Tensor, start: int) -> Tensor:
        """New tokens [C] of one row, the first of them at this position."""
        weight = self.tokens.weight
        # of a single token a view, which is quicker to have
        x = weight[int(tokens)].unsqueeze(0) if len(tokens) == 1 else F.embedding(tokens, weight)
        if not self.positions:
            return x * self.scale
        end = start + len(tokens)
        if end <= len(self.table):
            return torch.add(self.table[start:end], x, alpha=self.scale)
        table = sinusoids(torch.arange(start, end, device=x.device), x.shape[-1])
        return torch.add(table, x, alpha=self.scale)


class LayerNorm(nn.LayerNorm):
    """PyTorch's, with a kernel of its own on a GPU (docs/performance.md)."""

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cuda or x.dtype == torch.float64:
            return super().forward(x)
        from simultan.ops.norm_triton import layer_norm

        half = torch.is_autocast_enabled("cuda")
        return layer_norm(x, self.weight, self.bias, self.eps, half)


class FeedForward(nn.Module, Mapped):
    inner_map: Map
    outer_map: Map

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(model.width, model.ffn)
        self.outer = nn.Linear(model.ffn, model.width)
        self.dropout = Dropout(model.dropout)
        self.lay_out(Plain)

    def lay_out(self, make: Make) -> None:
        self.inner_map, self.outer_map = make(self.inner), make(self.outer)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout.relu(self.inner(x)))


class Residual(nn.Module):
    """x + f(norm(x)), or norm(x + f(x)): the two halves around f."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.norm = LayerNorm(model.width)
        self.pre = model.norm == "pre"
        self.dropout = Dropout(model.dropout)

    def before(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, update: Tensor) -> Tensor:
        x = x + self.dropout(update)
        return x if self.pre else self.norm(x)


class EncoderLayer(nn.Module):
    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(model, model.heads)
        self.attention_residual = Residual(model)
        self.ffn = FeedForward(model)
        self.ffn_residual = Residual(model)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention_residual.after(x, self.attention(self.attention_residual.before(x)))
        return self.ffn_residual.after(x, self.ffn(self.ffn_residual.before(x)))


class DecoderLayer(nn.Module):
    def __init__(self, model: ModelConfig, cross: MonotonicAttention, heads: int) -> None:
        super().__init__()
        self.attention = SelfAttention(model, heads)
        self.attention_residual = Residual(model)
        self.cross = cross
        self.cross_residual = Residual(model)
        self.ffn = FeedForward(model)
        self.ffn_residual = Residual(model)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        source_lengths: Tensor,
        alpha: Tensor | None,
        stops: Tensor | None,
        chance: Chance,
    ) -> tuple[Tensor, Tensor | None]:
        """Whole sequences: the layer's output, and the alignment it read with, if it is learned."""
        x = self.attention_residual.after(x, self.attention(self.attention_residual.before(x)))
        query = self.cross_residual.before(x)
        if stops is not None:
            return self.finish(x, self.cross.forward_fixed(query, memory, stops)), None
        context, alpha = self.cross(query, memory, source_lengths, alpha, chance)
        return self.finish(x, context), alpha

    def finish(self, x: Tensor, context: Tensor) -> Tensor:
        """From the attention over the source to the layer's output."""
        x = self.cross_residual.after(x, context)
        return self.ffn_residual.after(x, self.ffn(self.ffn_residual.before(x)))


class Transformer(TranslationModel):
    """forward() for training; initial_state(), extend() and step() for streams."""

    splits_words = True

    def __init__(self, config: Config, source_size: int, target_size: int) -> None:
        super().__init__(config)
        model = config.model
        self.rotary = model.positions == "rotary"
        self.heads = model.heads
        self.decoder_heads = model.decoder_heads or model.heads
        self.source_embedding = Embedding(model, source_size)
        self.target_embedding = Embedding(model, target_size)
        self.encoder = nn.ModuleList(EncoderLayer(model) for _ in range(model.encoder_layers))
        self.decoder = nn.ModuleList()  # of DecoderLayer
        for layer in range(model.decoder_layers):
            selects = self.policy.learned and (self.policy.every_head or layer == 0)
            cross = MonotonicAttention(
                model, config.policy, self.policy, self.decoder_heads, selects
            )
            self.decoder.append(DecoderLayer(model, cross, self.decoder_heads))
        final = model.norm == "pre"
        self.encoder_norm = LayerNorm(model.width) if final else nn.Identity()
        self.decoder_norm = LayerNorm(model.width) if final else nn.Identity()
        self.output = nn.Linear(model.width, target_size, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.output.weight, std=model.width**-0.5)
        self.tie(model.tie, self.source_embedding.tokens, self.target_embedding.tokens)
        self.lay_out(Plain)

    @property
    def encoder_layers(self) -> list[EncoderLayer]:
        return cast("list[EncoderLayer]", list(self.encoder))

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        return cast("list[DecoderLayer]", list(self.decoder))

    def encode(self, source: Tensor) -> Tensor:
        """[B, S] -> [B, S, D]"""
        x = self.source_embedding(source)
        for layer in self.encoder_layers:
            x = layer(x)
        return self.encoder_norm(x)

    def forward(self, batch: Batch) -> ModelOutput:
        memory = self.encode(batch.source)
        x = self.target_embedding(F.pad(batch.target[:, :-1], (1, 0), value=BOS))
        alphas: list[Tensor] = []
        alpha: Tensor | None = None
        stops, chance = self.fixed_stops(batch), self.chance(batch)
        for layer in self.decoder_layers:
            x, alpha = layer(x, memory, batch.source_lengths, alpha, stops, chance)
            if alpha is not None and layer.cross.selecting_heads:
                alphas.append(alpha)
        return ModelOutput(self.decoder_norm(x), self.expected_delays(alphas))

    def repeated_parts(self) -> list[nn.Module]:
        return [*self.encoder_layers, *self.decoder_layers]

    def cross_attentions(self) -> list[MonotonicAttention]:
        return [layer.cross for layer in self.decoder_layers]

    # streams

    def encoder_state(self, rows: int) -> EncoderState:
        weight = self.output.weight
        size = weight.shape[1] // self.heads
        return EncoderState(
            [0] * rows,
            cache=Cache(len(self.encoder), 2, rows, self.heads, size, weight),
            blocks=one_row.encoder_blocks(self.encoder_layers),
        )

    def prepare_target(self, rows: int, state: DecoderState) -> None:
        weight = self.output.weight
        size = weight.shape[1] // self.decoder_heads
        state.target = Cache(len(self.decoder), 2, rows, self.decoder_heads, size, weight)
        state.blocks = one_row.decoder_blocks(self.decoder_layers)

    def encode_more(
        self,
        tokens: Tensor,
        counts: Sequence[int],
        rows: Sequence[int],
        starts: Sequence[int],
        state: EncoderState,
        last: bool,
    ) -> Tensor:
        if len(rows) == 1:
            return one_row.encode(self, tokens[0], rows[0], starts[0], state)[None]
        cache = state.cache
        assert cache is not None
        view = self.view(cache, rows, starts, tokens.shape[1], last and not any(starts))
        x = self.source_embedding.step(tokens, view.positions)
        for index, block in enumerate(state.blocks):
            x = self.look_back(index, block, x, cache, view)
            x = one_row.feed_forward(block, x.flatten(0, 1)).view(x.shape)
        return self.encoder_norm(x)

    def step(
        self,
        tokens: Sequence[int],
        state: State,
        rows: Sequence[int],
        threshold: Sequence[float],
        *,
        attention: bool = False,
    ) -> Step:
        if len(rows) == 1 and not attention:
            return one_row.step(self, tokens[0], rows[0], state.decoder, threshold[0])
        return super().step(tokens, state, rows, threshold, attention=attention)

    def begin(self, tokens: Tensor, rows: list[int], state: DecoderState) -> Tensor:
        positions = torch.tensor([state.length[row] for row in rows], device=tokens.device)
        return self.target_embedding.step(tokens, positions)

    def before_source(self, index: int, x: Tensor, rows: list[int], state: DecoderState) -> Tensor:
        assert state.target is not None
        view, starts = state.view, [state.length[row] for row in rows]
        if view is None or view.rows != rows or view.starts != starts:  # mostly as one layer below
            view = state.view = self.view(state.target, rows, starts, 1, False)
        return self.look_back(index, state.blocks[index], x[:, None], state.target, view)[:, 0]

    def source_query(self, index: int, x: Tensor, state: DecoderState) -> Tensor:
        block = state.blocks[index]
        return torch.layer_norm(x, *block.cross_norm) if block.pre else x

    def after_source(self, index: int, x: Tensor, context: Tensor, state: DecoderState) -> Tensor:
        block = state.blocks[index]
        assert block.cross is not None
        x = block.cross.output_map.plus(context, x)
        return one_row.feed_forward(
            block, x if block.pre else torch.layer_norm(x, *block.cross_norm)
        )

    def end(self, x: Tensor) -> Tensor:
        return self.decoder_norm(x)

    def view(
        self, cache: Cache, rows: Sequence[int], starts: Sequence[int], count: int, alone: bool
    ) -> View:
        """Room in the cache for `count` new positions of each row, and what they can see.

        A row may be there more than once, with one position after the other.
        """
        now = dict(zip(reversed(rows), reversed(starts), strict=True))  # the first of each
        if not alone:
            cache.reserve(
                rows,
                [start + count for start in starts],
                lambda row: max(0, now[row] - self.window + 1) if self.window else 0,
            )
        device = cache.data.device
        first = torch.tensor(list(starts), device=device)[:, None]
        positions = first + torch.arange(count, device=device) if count > 1 else first
        slots = max(s + count - cache.base[row] for row, s in zip(rows, starts, strict=True))
        place, mask = cache.place(rows, starts, count), None
        if count > 1 or len(rows) > 1 or self.window:
            mask = additive(visible(place.slots, slots, self.window or None)[:, None], cache.data)
        return View(list(rows), list(starts), place, positions, mask, slots, alone)

    def look_back(self, index: int, block: Block, x: Tensor, cache: Cache, view: View) -> Tensor:
        """Self-attention of new positions x [R, C, D] over the cache."""
        y = torch.layer_norm(x, *block.norm) if block.pre else x
        qkv = block.qkv(y.flatten(0, 1)).view(*x.shape[:2], 3, block.heads, -1)
        query, new = qkv[:, :, 0].transpose(1, 2), qkv[:, :, 1:]
        if self.rotary:
            query = rotate(query, view.positions)
            keys = rotate(new[:, :, 0].transpose(1, 2), view.positions).transpose(1, 2)
            new = torch.stack([keys, new[:, :, 1]], 2)
        if view.alone:
            keys, values = new.permute(2, 0, 3, 1, 4)
        else:
            cache.write(index, view.place, new)
            keys, values = cache.read(index, view.rows, view.slots)
        context = join_heads(attend(query, keys, values, view.mask))
        x = block.output.plus(context.flatten(0, 1), x.flatten(0, 1)).view(x.shape)
        return x if block.pre else torch.layer_norm(x, *block.norm)
