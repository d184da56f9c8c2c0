"""Attention: over one's own past, and over the source under a policy.

Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V
energy = gain (m W^K)(s W^Q)^T / sqrt(d_k) + bias,  and separate projections for the softmax
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simultan.config import ModelConfig, PolicyConfig
from simultan.model import kernels
from simultan.model.cache import Cache, Span
from simultan.model.dropout import Dropout
from simultan.model.kernels import Reach
from simultan.model.linear import Joint, Linear
from simultan.model.policy import Chance, Policy, additive, p_choose, visible
from simultan.ops import expected_alignment, expected_attention, masked_attention

KEYS = 8  # source tokens a head looks at in one go, on a CPU: most heads stop within them
LARGE = 2**21  # numbers: too much for an intermediate result
WIDE = 512  # source tokens; masks of a shorter source are kept


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, N, H D] -> [B, H, N, D]"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[B, H, N, D] -> [B, N, H D]"""
    return x.transpose(1, 2).flatten(-2)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary positions: x [B, H, N, D], positions [B or 1, N]."""
    half = x.shape[-1] // 2
    rates = torch.exp(
        torch.arange(half, device=x.device, dtype=torch.float64) * (-math.log(10_000.0) / half)
    )
    angles = positions[:, None, :, None].double() * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half : 2 * half]
    return torch.cat([a * cos - b * sin, a * sin + b * cos, x[..., 2 * half :]], -1)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, exact: bool) -> Tensor:
    """New positions over a cache: q [R, C, H, D], k and v [R, N, H, D], mask [R, 1 or H, C, N].

    The mask is 0 or -inf; with several positions the last of a row sees up to the last key.
    `exact`: a position gives the same numbers whatever other rows and positions are there, to the
    last bit if the width is a multiple of 64, for which PyTorch adds in one order.
    """
    rows, count = q.shape[:2]
    few = rows > 1 and count == 1 and k.numel() <= LARGE and q.device.type == "cpu"
    if not exact and not few:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)
    if count == 1:
        return attend_once(q, k, v, None if mask is None else mask.permute(0, 3, 1, 2))
    parts = []
    piece = max(1, LARGE // k.numel())
    for c in range(0, count, piece):
        some = q[:, c : c + piece].unsqueeze(2)
        length = k.shape[1] - count + c + some.shape[1]  # what the last of them sees
        keys, values = (t[:, :length].unsqueeze(1) for t in (k, v))
        assert mask is not None
        seen = mask[:, :, c : c + piece, :length].permute(0, 2, 3, 1).unsqueeze(-1)
        parts.append(attend_once(some, keys, values, seen).squeeze(2))
    return torch.cat(parts, 1)


def attend_once(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """q [..., 1, H, D], k and v [..., N, H, D], mask [..., N, 1 or H, 1] -> [..., 1, H, D]

    For a matrix product of its own, each head of each row has too little to do; heads of a
    position lie side by side, so do their products.
    """
    return (v * attention_weights(q, k, mask)).sum(-3, True)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """Arguments as of attend_once() -> [..., N, H, 1]"""
    scores = (k * q).sum(-1, True)
    scale = 1.0 / math.sqrt(q.shape[-1])
    scores = scores.mul_(scale) if mask is None else torch.add(mask, scores, alpha=scale)
    return torch.softmax(scores, -3)


def mask_of(
    stops: list[list[int]], first: int, last: int, lookback: int | None, like: Tensor
) -> Tensor:
    """What heads see of the slots from `first` to `last`, up to their stops: [R, 1 or H, 1, N]."""
    count = last + 1 - first
    if len(stops) == 1 and lookback is None and count <= WIDE and like.device.type == "cpu":
        kept = unseen(tuple([last - stop for stop in stops[0]]), like.dtype)
        return kept.narrow(3, WIDE - count, count)
    at = torch.tensor(stops, device=like.device) - first
    return additive(visible(at, count, lookback), like).unsqueeze(2)


@lru_cache(maxsize=256)
def unseen(counts: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """[1, H, 1, WIDE]: head h does not see the last counts[h]. Kept: a row needs few of them."""
    stops = WIDE - 1 - torch.tensor([counts])
    return additive(visible(stops, WIDE, None), torch.empty(0, dtype=dtype)).unsqueeze(2)


class SelfAttention(nn.Module):
    """Each position sees itself and its past, all of it or a window; or the whole sequence."""

    exact = False  # of streams; see attend()
    compiled = False  # of streams: by kernels.c, which is exact

    def __init__(self, model: ModelConfig, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.window = model.window
        self.rotary = model.positions == "rotary"
        self.dropout = model.attention_dropout
        self.qkv = Linear(model.width, 3 * model.width)
        self.output = Linear(model.width, model.width)

    def forward(
        self,
        x: Tensor,
        span: Span | None = None,
        layer: int = 0,
        stops: Tensor | None = None,
        norm: nn.LayerNorm | None = None,
    ) -> Tensor:
        """What is found [..., D], to go through `output`: of whole sequences x [B, N, D]; or of new
        positions [R, C, D], a span of the cache. With stops [B, 1] all positions see the sequence
        up to there. `norm` is applied to x first."""
        batch, count, width = x.shape
        qkv = self.qkv(x, norm=norm)
        if span is not None and self.compiled and not self.rotary:
            return kernels.look_back(qkv, span.cache.layers[layer], span.reach)
        qkv = qkv.view(batch, count, 3, self.heads, width // self.heads)
        if self.rotary:
            if span is None:
                positions = torch.arange(count, device=x.device)[None]
            else:
                positions = span.positions
            turned = [rotate(part.transpose(1, 2), positions).transpose(1, 2)
                      for part in qkv.unbind(2)[:2]]  # fmt: skip
            qkv = torch.stack([*turned, qkv[:, :, 2]], 2)
        if span is not None and self.compiled:
            return kernels.look_back(qkv.flatten(2), span.cache.layers[layer], span.reach)
        if span is None:
            parts = qkv.permute(2, 0, 3, 1, 4)
            context = self.attend_all(parts[0], parts[1], parts[2], stops).transpose(1, 2)
        else:
            span.cache.write(layer, 0, span, qkv.narrow(2, 1, 2))
            context = attend(qkv.select(2, 0), *span.read(layer), span.mask, self.exact)
        return context.reshape(x.shape)

    def attend_all(self, q: Tensor, k: Tensor, v: Tensor, stops: Tensor | None) -> Tensor:
        """Of whole sequences. Right padding needs no mask: it is the future."""
        dropout = self.dropout if self.training else 0.0
        if stops is not None and dropout:
            mask = visible(stops, k.shape[2], None)[:, None]
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        if stops is not None:
            return masked_attention(q, k, v, stops)
        if self.window and self.window < q.shape[2]:
            mask = visible(torch.arange(q.shape[2], device=q.device), q.shape[2], self.window)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        if dropout:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        return masked_attention(q, k, v, None)


class MonotonicAttention(nn.Module):
    """Attention over the source up to where each head stops."""

    exact = False  # of streams; see attend()
    compiled = False  # of streams: by kernels.c, which is exact

    def __init__(
        self, model: ModelConfig, config: PolicyConfig, policy: Policy, heads: int, selects: bool
    ) -> None:
        super().__init__()
        width, size = model.width, model.width // heads
        self.policy = policy
        self.heads = heads
        self.selecting_heads = (heads if policy.every_head else 1) if selects else 0
        self.noise, self.spread = config.noise, config.spread
        self.dropout = Dropout(model.attention_dropout)
        self.soft = policy.lookback != 1
        if self.soft:
            self.query = Linear(width, width)
            self.key = Linear(width, width)
        self.value = Linear(width, width)
        self.output = Linear(width, width)
        self.energy_bias: nn.Parameter | None = None
        self.energy_gain: nn.Parameter | None = None
        if self.selecting_heads:
            self.select_query = Linear(width, self.selecting_heads * size)
            self.select_key = Linear(width, self.selecting_heads * size)
            if config.energy_bias is not None:
                bias = torch.full((self.selecting_heads, 1, 1), config.energy_bias)
                self.energy_bias = nn.Parameter(bias)
            if config.energy_gain:
                self.energy_gain = nn.Parameter(torch.ones(self.selecting_heads, 1, 1))
        self.width, self.select_width = width, self.selecting_heads * size
        asking = [self.select_query] if self.selecting_heads else []
        asking += [self.query] if self.soft else []
        self.all_queries = Joint(*asking) if asking else None

    def energy(self, query: Tensor, key: Tensor) -> Tensor:
        """Selection energies [B, H, T, S], of projected states; training and streaming alike."""
        query = query * (1.0 / math.sqrt(query.shape[-1]))
        if query.shape[-2] == 1 and query.device.type == "cpu":  # not many tiny matrix products
            energy = (key * query).sum(-1).unsqueeze(-2)
        else:
            energy = torch.matmul(query, key.transpose(-1, -2))
        if self.energy_gain is not None:
            energy = energy * self.energy_gain
        return energy if self.energy_bias is None else energy + self.energy_bias

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        source_lengths: Tensor,
        alpha: Tensor | None,
        chance: Chance,
    ) -> tuple[Tensor, Tensor]:
        """Learned policies: x [B, T, D], memory [B, S, D] -> what is found, to go through `output`,
        and alpha [B, H, T, S].

        A layer that does not select takes the alpha of the layer that does.
        """
        if self.selecting_heads:
            select_query = split_heads(self.select_query(x), self.selecting_heads)
            select_key = split_heads(self.select_key(memory), self.selecting_heads)
            noise = self.noise if self.training else 0.0
            energy = self.energy(select_query, select_key)
            p = p_choose(energy, source_lengths, noise, self.spread, chance)
            alpha = expected_alignment(p, source_lengths)
        assert alpha is not None
        beta = alpha
        value = split_heads(self.value(memory), self.heads)
        if self.soft:
            query = split_heads(self.query(x), self.heads)
            key = split_heads(self.key(memory), self.heads)
            u = torch.matmul(query * (1.0 / math.sqrt(query.shape[-1])), key.transpose(-1, -2))
            beta = expected_attention(
                alpha.expand_as(u), u, source_lengths, lookback=self.policy.lookback
            )
        context = torch.matmul(self.dropout(beta).to(value.dtype), value)
        return join_heads(context), alpha

    def forward_fixed(self, x: Tensor, memory: Tensor, stops: Tensor) -> Tensor:
        """Fixed policies: where each target token stops is known, stops [B, T or 1]."""
        q = split_heads(self.query(x), self.heads)
        k, v = (split_heads(part(memory), self.heads) for part in (self.key, self.value))
        dropout = self.dropout.p if self.training else 0.0
        if self.policy.lookback is None and not dropout:
            context = masked_attention(q, k, v, stops)
        else:
            mask = visible(stops, memory.shape[1], self.policy.lookback)[:, None]
            context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        return join_heads(context)

    # --- streams ---

    def source_linears(self) -> list[Linear]:
        """What a decoder keeps of an encoded token, but for the selection keys."""
        return [self.key, self.value] if self.soft else [self.value]

    def queries(self, x: Tensor, norm: nn.LayerNorm | None = None) -> Tensor:
        """All queries of one target token, x [R, D] -> [R, Q]: to select by, then to attend by."""
        return x[:, :0] if self.all_queries is None else self.all_queries.forward(x, norm)

    def energies(
        self,
        queries: Tensor,
        selection: Cache,
        layer: int,
        rows: list[int],
        slots: list[int],
        count: int,
    ) -> Tensor:
        """Of `count` source tokens of each row, from its slot on: [R, H, N]."""
        query = queries.narrow(1, 0, self.select_width)
        query = query.view(len(rows), self.selecting_heads, 1, -1)
        keys = selection.read(layer, rows, slots, count).select(2, 0).transpose(1, 2)
        return self.energy(query, keys).squeeze(2)

    def first_chosen(
        self,
        queries: Tensor,
        selection: Cache,
        layer: int,
        rows: list[int],
        begins: list[list[int]],
        ends: list[int],
        limits: list[float],
    ) -> list[list[int]]:
        """The first source token, from begins[r][h] to ends[r], whose energy exceeds the row's
        limit, which is p_choose > threshold without a sigmoid; ends[r]: there is none."""
        bases, heads = [selection.base[row] for row in rows], self.selecting_heads
        if self.compiled:
            reach = Reach(
                rows,
                [t - base for at, base in zip(begins, bases, strict=True) for t in at],
                [end - base for end, base in zip(ends, bases, strict=True) for _ in range(heads)],
            )
            found = kernels.scan(
                queries, selection.layers[layer], reach, limits, self.energy_gain,
                self.energy_bias,
            )  # fmt: skip
            return [[found[i * heads + h] + base for h in range(heads)]
                    for i, base in enumerate(bases)]  # fmt: skip
        chosen = [list(at) for at in begins]
        looking = [min(at) for at in begins]  # the first token that a head of the row looks at
        while (longest := max(e - t for e, t in zip(ends, looking, strict=True))) > 0:
            slots = [t - base for t, base in zip(looking, bases, strict=True)]
            count = longest if queries.is_cuda else min(KEYS, longest)  # a GPU would wait for each
            low, high = min(slots), max(slots)
            if len(rows) > 1 and high - low < KEYS:  # the same slots of all rows need no copy
                slots, count = [low] * len(rows), count + high - low
            count = min(count, selection.capacity)
            slots = [min(slot, selection.capacity - count) for slot in slots]
            energies = self.energies(queries, selection, layer, rows, slots, count).tolist()
            for r, (at, energy) in enumerate(zip(chosen, energies, strict=True)):
                first, end = slots[r] + bases[r], min(slots[r] + bases[r] + count, ends[r])
                for h, t in enumerate(at):
                    while first <= t < end and energy[h][t - first] <= limits[r]:
                        t += 1
                    at[h] = t
                looking[r] = min((t for t in at if end <= t < ends[r]), default=ends[r])
        return chosen

    def read(
        self,
        queries: Tensor,
        source: Cache,
        layer: int,
        rows: Sequence[int],
        stops: list[list[int]],
        weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from one target token to the source up to each head's stop, [R][1 or H].

        -> [R, D], to go through `output`, and, if wanted, the weights [R, H, N].
        """
        lookback, heads = self.policy.lookback, self.heads
        slots = [[t - source.base[row] for t in at] for row, at in zip(rows, stops, strict=True)]
        if self.compiled and self.soft and not weights:
            query = queries.narrow(1, self.select_width, self.width)
            ends = [t + 1 for at in slots for t in (at if len(at) == heads else at * heads)]
            far = lookback or max(ends)
            reach = Reach(rows, [max(0, end - far) for end in ends], ends)
            return kernels.attend(query, source.layers[layer], reach), None
        last = max(map(max, slots))
        first = 0 if lookback is None else max(0, min(map(min, slots)) - lookback + 1)
        keys_values = source.read(layer, rows, [first] * len(rows), last + 1 - first)
        value = keys_values.select(2, -1)
        alike = all(slot == last for at in slots for slot in at)
        if not self.soft:
            if alike:
                return value[:, last - first].flatten(1), None
            at = torch.tensor(slots, device=value.device) - first
            index = at[:, None, :, None].expand(-1, 1, heads, value.shape[-1])
            return value.gather(1, index).flatten(1), None
        mask = None
        if not alike:  # else all heads see all that was read from the cache
            mask = mask_of(slots, first, last, lookback, value)
        query = queries.narrow(1, self.select_width, heads * value.shape[-1])
        query = query.view(len(rows), 1, heads, -1)
        key = keys_values.select(2, 0)
        context = attend(query, key, value, mask, self.exact)
        found = None
        if weights:
            seen = None if mask is None else mask.permute(0, 3, 1, 2)
            found = attention_weights(query, key, seen).squeeze(-1).transpose(1, 2)
            found = F.pad(found, (first, 0))
        return context.reshape(len(rows), -1), found
