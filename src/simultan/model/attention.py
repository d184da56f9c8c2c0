"""Attention: over one's own past, and over the source under a policy.

Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V
energy = gain (m W^K)(s W^Q)^T / sqrt(d_k) + bias,  and separate projections for the softmax
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simultan.config import ModelConfig, PolicyConfig
from simultan.model.dropout import Dropout
from simultan.model.maps import Make, Map, Mapped, Plain
from simultan.model.policy import Chance, Policy, additive, p_choose, visible
from simultan.ops import expected_alignment, expected_attention, masked_attention

LARGE = 2**21  # numbers: too much for an intermediate result


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


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """A few queries over a cache: q [R, H, C, D], k and v [R, H, N, D], mask 0 or -inf."""
    rows, _, count, size = q.shape
    if rows == 1 or count > 1 or k.numel() > LARGE or q.device.type != "cpu":
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    # One query a row: for a matrix product of its own, each head of each row has too little to
    # do. Heads of a position lie side by side, so do their products.
    scores = (k.transpose(1, 2) * q.transpose(1, 2)).sum(-1)  # [R, N, H]
    scale = 1.0 / math.sqrt(size)
    if mask is None:
        scores = scores * scale
    else:
        scores = torch.add(mask[:, :, 0].transpose(1, 2), scores, alpha=scale)
    weights = torch.softmax(scores, 1).unsqueeze(-1)
    return (v.transpose(1, 2) * weights).sum(1).unsqueeze(2)


class SelfAttention(nn.Module, Mapped):
    """Each position sees itself and its past, all of it or a window."""

    qkv_map: Map
    output_map: Map

    def __init__(self, model: ModelConfig, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.window = model.window
        self.rotary = model.positions == "rotary"
        self.dropout = model.attention_dropout
        self.qkv = nn.Linear(model.width, 3 * model.width)
        self.output = nn.Linear(model.width, model.width)
        self.lay_out(Plain)

    def lay_out(self, make: Make) -> None:
        self.qkv_map, self.output_map = make(self.qkv), make(self.output)

    def forward(self, x: Tensor) -> Tensor:
        """The whole sequence x [B, N, D]: right padding needs no mask, it is the future."""
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        if self.rotary:
            positions = torch.arange(x.shape[1], device=x.device)[None]
            q, k = rotate(q, positions), rotate(k, positions)
        dropout = self.dropout if self.training else 0.0
        if self.window and self.window < x.shape[1]:
            mask = visible(torch.arange(x.shape[1], device=x.device), x.shape[1], self.window)
            context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        elif dropout:
            context = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        else:
            context = masked_attention(q, k, v, None)
        return self.output(join_heads(context))


class MonotonicAttention(nn.Module, Mapped):
    """Attention over the source up to where each head stops."""

    query_map: Map | None  # selection queries, then attention queries
    output_map: Map

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
            self.query = nn.Linear(width, width)
            self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.energy_bias: nn.Parameter | None = None
        self.energy_gain: nn.Parameter | None = None
        if self.selecting_heads:
            self.select_query = nn.Linear(width, self.selecting_heads * size)
            self.select_key = nn.Linear(width, self.selecting_heads * size)
            if config.energy_bias is not None:
                bias = torch.full((self.selecting_heads, 1, 1), config.energy_bias)
                self.energy_bias = nn.Parameter(bias)
            if config.energy_gain:
                self.energy_gain = nn.Parameter(torch.ones(self.selecting_heads, 1, 1))
        self.select_width = self.selecting_heads * size
        self.lay_out(Plain)

    def lay_out(self, make: Make) -> None:
        queries = [self.select_query] if self.selecting_heads else []
        queries += [self.query] if self.soft else []
        self.query_map = make(*queries) if queries else None
        self.output_map = make(self.output)

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
        """Learned policies: x [B, T, D], memory [B, S, D] -> output, alpha [B, H, T, S].

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
        return self.output(join_heads(context)), alpha

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
        return self.output(join_heads(context))

    def source_linears(self) -> list[nn.Linear]:
        """What a decoder keeps of an encoded token, but for the selection keys."""
        return [self.key, self.value] if self.soft else [self.value]

    def ask(self, x: Tensor, select: bool = True) -> Tensor:
        """All queries of one target token, x [R, D] -> [R, Q]: to select by, then to attend by.

        Without `select`, those to attend by alone.
        """
        if self.query_map is None or not (select or self.soft):
            return x[:, :0]
        if select or not self.selecting_heads:
            return self.query_map(x)
        return self.query_map.part(-1, x)

    def selection(self, asked: Tensor) -> Tensor:
        """The selection queries among them [R, H, 1, D]."""
        return asked[:, : self.select_width].unflatten(-1, (self.selecting_heads, 1, -1))

    def step(self, asked: Tensor, source: Tensor, stops: Tensor) -> Tensor:
        """One target token: asked [R, Q], source [K, R, H, N, D], stops [R, 1 or H] -> [R, D],
        to be put through output_map."""
        value = source[-1]
        if not self.soft:
            index = stops[..., None, None].expand(-1, self.heads, 1, value.shape[-1])
            return value.gather(2, index).flatten(1)
        query = asked[:, -self.query.out_features :].unflatten(-1, (self.heads, 1, -1))
        seen = visible(stops, value.shape[2], self.policy.lookback)[:, :, None, :]
        mask = additive(seen, query)
        return attend(query, source[0], value, mask).flatten(1)

    def weights(self, asked: Tensor, source: Tensor, stops: Tensor) -> Tensor:
        """The weights with which step() attends [R, H, N]."""
        query = asked[:, -self.query.out_features :].unflatten(-1, (self.heads, 1, -1))
        seen = visible(stops, source.shape[3], self.policy.lookback)
        scores = torch.matmul(query, source[0].transpose(-1, -2))[:, :, 0]
        return torch.softmax(scores * query.shape[-1] ** -0.5 + additive(seen, query), -1)
