"""A Transformer whose decoder layers each read under a policy; its encoder is unidirectional,
unless it is an offline model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simultan.config import Config, ModelConfig
from simultan.data.batching import Batch
from simultan.data.vocabulary import BOS
from simultan.model.attention import MonotonicAttention, SelfAttention
from simultan.model.cache import Cache, Span
from simultan.model.dropout import Dropout
from simultan.model.linear import Linear
from simultan.model.policy import Chance
from simultan.model.state import Memory, State
from simultan.model.translation import ModelOutput, TranslationModel

PAGE = 1024  # positions in a table

# beside relu, which goes with its dropout
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"swish": F.silu, "gelu": F.gelu}


def sinusoids(positions: Tensor, width: int, steps: int = 0) -> Tensor:
    """[...] -> [..., D]; in double precision, so that a long stream's positions stay apart.

    `steps` from the shortest wavelength to 10,000 times it; 0: one for each but the first.
    """
    half = width // 2
    rates = torch.exp(
        torch.arange(half, device=positions.device, dtype=torch.float64)
        * (-math.log(10_000.0) / (steps or max(1, half - 1)))
    )
    angles = positions[..., None].double() * rates
    return F.pad(torch.cat([angles.sin(), angles.cos()], -1), (0, width - 2 * half)).float()


@lru_cache(maxsize=8)
def page(number: int, first: int, width: int, steps: int, device: torch.device) -> Tensor:
    """Positions of an endless stream: together they cost a quarter of what each alone would."""
    return sinusoids(torch.arange(PAGE, device=device) + (PAGE * number + first), width, steps)


class Embedding(nn.Module):
    """Tokens and, unless attention rotates, positions."""

    table: Tensor

    def __init__(self, model: ModelConfig, size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size, model.width)
        nn.init.normal_(self.tokens.weight, std=model.width**-0.5)
        self.scale = math.sqrt(model.width) if model.scale_embeddings else 1.0
        self.dropout = Dropout(model.dropout)
        self.word_dropout = model.word_dropout
        self.positions = model.positions != "rotary"
        self.steps = model.width // 2 if model.positions == "marian" else 0
        self.first = model.first_position
        table = self.waves(torch.arange(PAGE)) if self.positions else torch.zeros(0)
        self.register_buffer("table", table, persistent=False)

    def waves(self, positions: Tensor) -> Tensor:
        return sinusoids(positions + self.first, self.tokens.embedding_dim, self.steps)

    def forward(self, tokens: Tensor) -> Tensor:
        """Whole sequences [B, N]."""
        x = self.tokens(tokens) * self.scale
        if self.training and self.word_dropout:
            drop = torch.rand(tokens.shape, device=x.device) < self.word_dropout
            x = x.masked_fill(drop[..., None], 0.0)
        x = self.add_positions(x, [0])
        if torch.is_autocast_enabled(x.device.type):  # the residual stream, too, is narrow
            x = x.to(torch.get_autocast_dtype(x.device.type))
        return self.dropout(x)

    def step(self, tokens: Tensor, starts: Sequence[int]) -> Tensor:
        """New tokens [R, C], the first of each row at its position in `starts`."""
        return self.add_positions(torch.embedding(self.tokens.weight, tokens) * self.scale, starts)

    def add_positions(self, x: Tensor, starts: Sequence[int]) -> Tensor:
        if not self.positions:
            return x
        count = x.shape[1]
        known = max(starts) + count <= len(self.table)
        if known and len(starts) == 1:
            return x + self.table[starts[0] : starts[0] + count]
        number, slot = divmod(starts[0], PAGE)
        if len(starts) == 1 and number and slot + count <= PAGE:
            sizes = self.first, self.tokens.embedding_dim, self.steps
            return x + page(number, *sizes, x.device)[slot : slot + count]
        positions = torch.tensor(starts, device=x.device)[:, None]
        positions = positions + torch.arange(count, device=x.device)
        return x + (self.table[positions] if known else self.waves(positions))


class LayerNorm(nn.LayerNorm):
    """PyTorch's, with a kernel of its own on a GPU (docs/performance.md)."""

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cuda or x.dtype == torch.float64:
            return torch.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        from simultan.ops.norm_triton import layer_norm

        half = torch.is_autocast_enabled("cuda")
        return layer_norm(x, self.weight, self.bias, self.eps, half)


class FeedForward(nn.Module):
    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.inner = Linear(model.width, model.ffn)
        self.outer = Linear(model.ffn, model.width)
        self.dropout = Dropout(model.dropout)
        self.activation = ACTIVATIONS.get(model.activation)
        self.outer.positive = self.activation is None

    def forward(self, x: Tensor, norm: nn.LayerNorm | None = None) -> Tensor:
        """The hidden layer, to go through `outer`; `norm` is applied to x first."""
        if self.activation is not None:
            return self.dropout(self.activation(self.inner(x, norm=norm)))
        if self.training:
            return self.dropout.relu(self.inner(x, norm=norm))
        return self.inner(x, relu=True, norm=norm)


class Residual(nn.Module):
    """x + linear(f(norm(x))), or norm(x + linear(f(x))): what is around f.

    Norm and sum are part of the linear layers beside them, which may do all in one go. Here and in
    layers forward() is called by its name: what PyTorch does around it takes as long as some of
    the operations.
    """

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.norm = LayerNorm(model.width)
        self.pre = model.norm == "pre"
        self.dropout = Dropout(model.dropout)

    @property
    def before(self) -> LayerNorm | None:
        """What f begins with."""
        return self.norm if self.pre else None

    def after(self, x: Tensor, linear: Linear, found: Tensor) -> Tensor:
        x = x + self.dropout(linear(found)) if self.training else linear(found, plus=x)
        return x if self.pre else self.norm.forward(x)


class Layer(nn.Module):
    """Self-attention and a feed-forward network: of whole sequences [B, N, D], or of new
    positions [R, C, D] that are a span of a cache."""

    cross: MonotonicAttention
    cross_residual: Residual

    def __init__(
        self, model: ModelConfig, heads: int, cross: MonotonicAttention | None = None
    ) -> None:
        super().__init__()
        self.attention = SelfAttention(model, heads)
        self.attention_residual = Residual(model)
        if cross is not None:  # of a decoder; here, so that parameters have the order of layers
            self.cross = cross
            self.cross_residual = Residual(model)
        self.ffn = FeedForward(model)
        self.ffn_residual = Residual(model)

    def look_back(
        self, x: Tensor, span: Span | None = None, index: int = 0, stops: Tensor | None = None
    ) -> Tensor:
        """Each position looks at those before it; index of the layer in the cache. With stops
        [B, 1] it looks at all up to there."""
        residual, attention = self.attention_residual, self.attention
        found = attention.forward(x, span, index, stops, residual.before)
        return residual.after(x, attention.output, found)

    def feed_forward(self, x: Tensor) -> Tensor:
        residual, ffn = self.ffn_residual, self.ffn
        return residual.after(x, ffn.outer, ffn.forward(x, residual.before))


class EncoderLayer(Layer):
    def forward(self, x: Tensor, stops: Tensor | None = None) -> Tensor:
        return self.feed_forward(self.look_back(x, stops=stops))


class DecoderLayer(Layer):
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
        x = self.look_back(x)
        norm = self.cross_residual.before
        query = x if norm is None else norm(x)
        if stops is not None:
            return self.look_at(x, self.cross.forward_fixed(query, memory, stops)), None
        context, alpha = self.cross(query, memory, source_lengths, alpha, chance)
        return self.look_at(x, context), alpha

    def look_at(self, x: Tensor, found: Tensor) -> Tensor:
        """From what the attention over the source has found to the layer's output."""
        return self.feed_forward(self.cross_residual.after(x, self.cross.output, found))


@dataclass
class TransformerMemory(Memory):
    """Keys and values of self-attention. What lies past a row's cursor does not count, so a step
    needs no more than that to be committed."""

    encoder: Cache
    decoder: Cache
    span: Span | None = None  # of the decoder, in the step under way

    @property
    def caches(self) -> list[Cache]:
        return [self.encoder, self.decoder]

    def reset(self, row: int) -> None:
        for cache in self.caches:
            cache.reset(row)

    def take_over(self, rows: range, other: TransformerMemory, parent: int, length: int) -> None:
        self.decoder.take_over(rows, other.decoder, parent, length)
        self.span = None

    def reorder(self, parents: Sequence[int]) -> None:
        self.decoder.reorder(parents)

    def rewind(self, row: int, tokens: int, kept: Tensor | None) -> None:
        self.encoder.ends[row] = tokens


class Transformer(TranslationModel):
    """forward() for training; initial_state(), extend() and step() for streams."""

    splits_words = True

    def __init__(self, config: Config, source_size: int, target_size: int) -> None:
        super().__init__(config)
        model = config.model
        self.rotary = model.positions == "rotary"
        self.bidirectional = model.encoder == "bidirectional"
        self.splits_words = not self.bidirectional
        self.source_prefix, self.target_prefix = model.source_prefix, model.target_prefix
        self.heads = model.heads
        self.decoder_heads = model.decoder_heads or model.heads
        self.source_embedding = Embedding(model, source_size)
        self.target_embedding = Embedding(model, target_size)
        # the lists know their types, and are quicker to look into
        self.encoder_layers = [
            EncoderLayer(model, model.heads) for _ in range(model.encoder_layers)
        ]
        self.encoder = nn.ModuleList(self.encoder_layers)
        self.decoder_layers: list[DecoderLayer] = []
        for layer in range(model.decoder_layers):
            selects = self.policy.learned and (self.policy.every_head or layer == 0)
            cross = MonotonicAttention(
                model, config.policy, self.policy, self.decoder_heads, selects
            )
            self.decoder_layers.append(DecoderLayer(model, self.decoder_heads, cross))
        self.decoder = nn.ModuleList(self.decoder_layers)
        final = model.norm == "pre"
        self.encoder_norm = LayerNorm(model.width) if final else nn.Identity()
        self.decoder_norm = LayerNorm(model.width) if final else nn.Identity()
        self.output = Linear(model.width, target_size, bias=model.output_bias)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.output.weight, std=model.width**-0.5)
        self.tie(model.tie, self.source_embedding.tokens, self.target_embedding.tokens)
        self.join_source_keys()

    def encode(self, source: Tensor, source_lengths: Tensor | None = None) -> Tensor:
        """[B, S] -> [B, S, D]; without lengths there is no padding."""
        x, stops = self.source_embedding(source), None
        if self.bidirectional:
            if source_lengths is None:
                source_lengths = torch.full_like(source[:, 0], source.shape[1])
            stops = (source_lengths - 1)[:, None]
        for layer in self.encoder_layers:
            x = layer(x, stops)
        return self.encoder_norm(x)

    def forward(self, batch: Batch) -> ModelOutput:
        if self.bidirectional:
            batch = self.with_prefixes(batch)
        return self.decode(self.encode(batch.source, batch.source_lengths), batch)

    def decode(self, memory: Tensor, batch: Batch) -> ModelOutput:
        """Whole targets, over encoded sources [B, S, D]."""
        x = self.target_embedding(F.pad(batch.target[:, :-1], (1, 0), value=BOS))
        alphas: list[Tensor] = []
        alpha: Tensor | None = None
        stops, chance = self.fixed_stops(batch), self.chance(batch)
        for layer in self.decoder_layers:
            # a layer that selects needs nobody's alpha; without it all such layers are compiled
            # as one
            given = None if layer.cross.selecting_heads else alpha
            x, alpha = layer(x, memory, batch.source_lengths, given, stops, chance)
            if alpha is not None and layer.cross.selecting_heads:
                alphas.append(alpha)
        hidden = self.decoder_norm(x[:, len(self.target_prefix) :])
        return ModelOutput(hidden, self.expected_delays(alphas), chance.hard, chance.shift)

    def with_prefixes(self, batch: Batch) -> Batch:
        """The batch with what stands before every source and every target."""
        if not self.source_prefix and not self.target_prefix:
            return batch  # a GPU cannot record what is copied from the host
        source, target = (
            torch.cat([tokens.new_tensor(prefix).expand(len(tokens), -1), tokens], 1)
            for tokens, prefix in (
                (batch.source, self.source_prefix),
                (batch.target, self.target_prefix),
            )
        )
        source_lengths = batch.source_lengths + len(self.source_prefix)
        target_lengths = batch.target_lengths + len(self.target_prefix)
        return Batch(source, source_lengths, target, target_lengths)

    def repeated_parts(self) -> list[nn.Module]:
        return [*self.encoder_layers, *self.decoder_layers]

    def cross_attentions(self) -> list[MonotonicAttention]:
        return [layer.cross for layer in self.decoder_layers]

    # --- streams ---

    def memory(self, rows: int) -> TransformerMemory:
        weight = self.output.weight.detach()
        width = weight.shape[1]
        return TransformerMemory(
            Cache(len(self.encoder), 2, rows, self.heads, width // self.heads, weight),
            Cache(len(self.decoder), 2, rows, self.decoder_heads, width // self.decoder_heads,
                  weight),
        )  # fmt: skip

    def span(self, cache: Cache, rows: list[int], starts: list[int], count: int) -> Span:
        """Room in a cache for `count` new positions of each row."""
        window = self.window or None
        oldest: dict[int, int] = {}  # the first position that a row still sees
        for row, start in zip(rows, starts, strict=True):
            first = 0 if window is None else max(0, start - window + 1)
            oldest[row] = min(first, oldest.get(row, first))
        cache.reserve(rows, [start + count for start in starts], oldest.__getitem__)
        return Span(cache, rows, starts, count, window)

    def encode_more(
        self,
        tokens: Tensor,
        counts: Sequence[int],
        rows: list[int],
        starts: list[int],
        state: State,
    ) -> Tensor:
        if self.bidirectional:
            if any(starts):
                raise ValueError("a bidirectional encoder reads a sentence as a whole")
            return self.encode(tokens, torch.tensor(counts, device=tokens.device))
        memory = cast("TransformerMemory", state.memory)
        span = self.span(memory.encoder, rows, starts, tokens.shape[1])
        x = self.source_embedding.step(tokens, starts)
        for index, layer in enumerate(self.encoder_layers):
            x = layer.feed_forward(layer.look_back(x, span, index))
        return self.encoder_norm.forward(x)

    def begin(self, tokens: list[int], rows: list[int], state: State) -> Tensor:
        ids = torch.tensor(tokens, device=self.output.weight.device)[:, None]
        return self.target_embedding.step(ids, [state.length[row] for row in rows])[:, 0]

    def look_back(self, layer: int, x: Tensor, rows: list[int], state: State) -> Tensor:
        memory = cast("TransformerMemory", state.memory)
        span, starts = memory.span, [state.length[row] for row in rows]
        if span is None or span.rows != rows or span.starts != starts:  # else as one layer below
            span = memory.span = self.span(memory.decoder, list(rows), starts, 1)
        return self.decoder_layers[layer].look_back(x.unsqueeze(1), span, layer).squeeze(1)

    def queries(self, layer: int, x: Tensor) -> Tensor:
        decoder = self.decoder_layers[layer]
        return decoder.cross.queries(x, decoder.cross_residual.before)

    def look_at(self, layer: int, x: Tensor, found: Tensor) -> Tensor:
        return self.decoder_layers[layer].look_at(x, found)

    def end(self, x: Tensor) -> Tensor:
        return self.decoder_norm.forward(x)
