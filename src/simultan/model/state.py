"""What a stream remembers: buffers with a leading row dimension, and per-row cursors.

Buffers may hold anything past a cursor; the cursor is the truth. A position is absolute;
the slot it lies in is position - base, because a windowed model drops what it can no longer see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from simultan.model.memory import zeros
from simultan.model.policy import lookback_start

if TYPE_CHECKING:
    from simultan.model.one_row import Block
    from simultan.model.transformer import View


@dataclass(frozen=True, slots=True)
class Place:
    """Slots of some rows."""

    rows: Tensor  # [R, 1]
    slots: Tensor  # [R, C]
    alike: slice | None  # all rows, the same slots: faster to write to


class Cache:
    """Keys (and values) of all layers: data [L, K, B, H, N, D], K tensors a layer.

    In memory the heads of a position lie side by side, as a projection gives them.
    """

    def __init__(
        self, layers: int, kinds: int, rows: int, heads: int, size: int, like: Tensor
    ) -> None:
        self.data = zeros(layers, kinds, rows, 32, heads, size, like=like).transpose(3, 4)
        self.base = [0] * rows
        self.all_rows = list(range(rows))
        self.views: dict[tuple[int, int], Tensor] = {}  # of `viewed`
        self.viewed = self.data

    @property
    def capacity(self) -> int:
        return self.data.shape[4]

    @property
    def token_size(self) -> int:
        """L K H D"""
        layers, kinds, _, heads, _, size = self.data.shape
        return layers * kinds * heads * size

    def row(self, layer: int, row: int) -> Tensor:
        """One row of one layer [K, 1, H, N, D], a view."""
        if self.viewed is not self.data:
            self.viewed, self.views = self.data, {}
        view = self.views.get((layer, row))
        if view is None:
            view = self.views[layer, row] = self.data[layer, :, row : row + 1]
        return view

    def reserve(
        self, rows: Sequence[int], ends: Sequence[int], keep_from: Callable[[int], int]
    ) -> None:
        """Room for positions up to `ends`; what lies before keep_from(row) may be dropped."""
        capacity = self.capacity
        full = [r for r, end in zip(rows, ends, strict=True) if end - self.base[r] > capacity]
        if not full:
            return
        for row in full:
            drop = keep_from(row) - self.base[row]
            if drop >= capacity // 2:  # so that moving the rest costs O(1) a position
                kept = self.data[:, :, row, :, drop:].clone()
                self.data[:, :, row, :, : capacity - drop] = kept
                self.base[row] += drop
        wanted = max(end - self.base[row] for row, end in zip(rows, ends, strict=True))
        if wanted > capacity:
            *shape, heads, _, size = self.data.shape
            grown = zeros(*shape, max(2 * capacity, wanted), heads, size, like=self.data)
            grown = grown.transpose(3, 4)
            grown[..., :capacity, :] = self.data
            self.data = grown

    def place(self, rows: Sequence[int], starts: Sequence[int], count: int) -> Place:
        """Where positions starts[r] ... starts[r] + count lie."""
        device = self.data.device
        at = [start - self.base[row] for row, start in zip(rows, starts, strict=True)]
        slots = torch.tensor(at, device=device)[:, None]
        if count > 1:
            slots = slots + torch.arange(count, device=device)
        alike = len(set(at)) == 1 and list(rows) == self.all_rows
        return Place(
            torch.tensor(rows, device=device)[:, None],
            slots,
            slice(at[0], at[0] + count) if alike else None,
        )

    def write(self, layer: int, place: Place, new: Tensor, kinds: slice = slice(None)) -> None:
        """Put new [R, C, K, H, D] there."""
        if place.alike is not None:
            self.data[layer, kinds, :, :, place.alike].copy_(new.permute(2, 0, 3, 1, 4))
        else:
            self.data[layer, kinds][:, place.rows, :, place.slots] = new

    def write_layers(self, rows: Sequence[int], starts: Sequence[int], new: Tensor) -> None:
        """Put new [R, C, L K H D], of all layers, at positions starts[r] ... starts[r] + C."""
        count = new.shape[1]
        layers, kinds, _, heads, _, size = self.data.shape
        new = new.unflatten(-1, (layers, kinds, heads, size))
        if len(rows) == 1:
            slot = starts[0] - self.base[rows[0]]
            slots = self.data[:, :, rows[0], :, slot : slot + count]
            slots.copy_(new[0].permute(1, 2, 3, 0, 4))
            return
        where = self.place(rows, starts, count)
        for layer in range(layers):
            self.write(layer, where, new[:, :, layer])

    def write_parts(
        self, rows: Sequence[int], starts: Sequence[int], parts: Iterator[Tensor]
    ) -> None:
        """The same, of the next L K parts [R C, H D]."""
        layers, kinds, _, heads, _, size = self.data.shape
        where: Place | None = None
        for layer in range(layers):
            for kind in range(kinds):
                new = next(parts).view(len(rows), -1, 1, heads, size)
                where = where or self.place(rows, starts, new.shape[1])
                self.write(layer, where, new, slice(kind, kind + 1))

    def reorder(self, parents: Sequence[int]) -> None:
        """Row r goes on from what row parents[r] has."""
        self.base = [self.base[parent] for parent in parents]
        index = torch.tensor(parents, device=self.data.device)
        self.data = self.data.transpose(3, 4)[:, :, index].transpose(3, 4)

    def read(self, layer: int, rows: Sequence[int], length: int) -> Tensor:
        """[K, R, H, length, D]; a view where all rows are asked for in order."""
        data = self.data[layer, :, :, :, :length]
        if list(rows) == self.all_rows:
            return data
        if len(rows) == 1:
            return data[:, rows[0] : rows[0] + 1]
        if data.is_cuda:
            return data[:, torch.tensor(rows, device=data.device)]
        tokens = data.transpose(2, 3)  # as they lie: copied in long pieces, faster than by index
        return torch.stack([tokens.select(1, row) for row in rows], 1).transpose(2, 3)

    def windows(self, layer: int, rows: Sequence[int], begin: Tensor, count: int) -> Tensor:
        """`count` slots of each row, from begin [R or 1, 1] on: [K, R, H, count, D]."""
        if list(rows) == self.all_rows and (len(begin) == 1 or bool((begin == begin[0]).all())):
            return self.data[layer].narrow(3, int(begin[0]), count)
        kinds, number, heads, capacity, size = self.data.shape[1:]
        lying = self.data[layer].transpose(2, 3).reshape(kinds, number * capacity, heads * size)
        slots = torch.tensor(rows, device=begin.device)[:, None] * capacity + begin
        slots = (slots + torch.arange(count, device=begin.device)).view(-1)
        found = lying.index_select(1, slots)
        return found.view(kinds, len(rows), count, heads, size).transpose(2, 3)


@dataclass
class EncoderState:
    """The encoder's memory of each row."""

    length: list[int]  # tokens encoded
    cache: Cache | None = None  # transformer
    recurrent: tuple[Tensor, Tensor] | None = None  # h, c [L, B, D]
    blocks: list[Block] = field(default_factory=list)  # transformer: its layers, for one row


@dataclass
class DecoderState:
    """Committed: length, positions, caches. Of the step under way: layer and what follows it."""

    source: Cache  # keys and values of the encoded source, all layers
    selection: Cache | None  # the keys heads select by
    lags: list[int]  # fixed policies: k of each row; 0: the whole source
    stops: list[int]  # fixed policies: where a rule wants the next token to stop; -1: no rule
    available: list[int]  # source tokens encoded
    finished: list[bool]  # the last of them is end-of-sequence
    length: list[int]  # target tokens written
    positions: Tensor  # [B, L, H] the source token each selecting head stopped at
    floor: list[int]  # heads scan from here at least
    layer: list[int]  # where a row waits for source; -1: no step under way
    hidden: Tensor  # [B, D] what it brought there
    query: Tensor  # [B, Q] its queries there: to select by, then to attend by
    stopped: Tensor  # [B, H] the heads of that layer that need no more source
    nothing: Tensor  # [0, V] the logits of a step that waits
    trial: Tensor  # [B, L, H] positions, for this step, as far as they are known
    target: Cache | None = None  # transformer: self-attention
    recurrent: tuple[Tensor, Tensor] | None = None  # h, c [L, B, D], committed
    recurrent_next: tuple[Tensor, Tensor] | None = None  # h, c after the step under way
    blocks: list[Block] = field(default_factory=list)  # transformer: its layers, for one row
    view: View | None = None  # transformer: what the last rows to come see of the target
    evaluations: int = 0  # decoder layers evaluated, over all rows: the cost of a stream


@dataclass
class State:
    """A stream of B rows."""

    encoder: EncoderState
    decoder: DecoderState
    lookback: int | None  # source tokens a stop can see; None: all

    @property
    def available(self) -> list[int]:
        """Source tokens read, of each row."""
        return self.decoder.available

    @property
    def finished(self) -> list[bool]:
        """Whether the last of them is end-of-sequence."""
        return self.decoder.finished

    @property
    def length(self) -> list[int]:
        """Target tokens committed, of each row."""
        return self.decoder.length

    @property
    def scan_from(self) -> list[int]:
        """The first source token at which a head of each row may stop."""
        return self.decoder.floor

    def set_lag(self, row: int, k: int) -> None:
        """Fixed policies: target token i sees the first i + k - 1 source tokens."""
        self.decoder.lags[row] = k

    def limit(self, row: int, tokens: int | None) -> None:
        """Fixed policies: until the next call the row sees its first `tokens` source tokens, at
        least one, or all there are once its source has ended; None: what the lag says."""
        self.decoder.stops[row] = -1 if tokens is None else max(1, tokens) - 1

    def skip_to(self, row: int, token: int) -> None:
        """No head of the row stops before this source token any more."""
        self.decoder.floor[row] = max(self.decoder.floor[row], token)

    def needed(self, row: int) -> int:
        """The first source token a head may still look at."""
        decoder = self.decoder
        first = max(int(decoder.positions[row].min()), decoder.floor[row])
        return lookback_start(first, self.lookback)

    def reset(self, row: int) -> None:
        """The row starts a new sentence; buffers stay, cursors go back."""
        encoder, decoder = self.encoder, self.decoder
        for cache in (encoder.cache, decoder.source, decoder.selection, decoder.target):
            if cache is not None:
                cache.base[row] = 0
        for recurrent in (encoder.recurrent, decoder.recurrent):
            if recurrent is not None:
                recurrent[0][:, row] = 0
                recurrent[1][:, row] = 0
        encoder.length[row] = decoder.available[row] = decoder.length[row] = 0
        decoder.finished[row] = False
        decoder.positions[row] = 0
        decoder.floor[row] = 0
        decoder.stops[row] = -1
        decoder.layer[row] = -1

    def commit(self, rows: Sequence[int]) -> None:
        """The rows have written their token: its keys, positions and states now count."""
        decoder = self.decoder
        index = list(rows)
        if len(index) == 1:
            decoder.positions[index[0]] = decoder.trial[index[0]]
        else:
            decoder.positions[index] = decoder.trial[index]
        for row in index:
            decoder.length[row] += 1
        if decoder.recurrent is not None and decoder.recurrent_next is not None:
            for now, new in zip(decoder.recurrent, decoder.recurrent_next, strict=True):
                now[:, index] = new[:, index]

    def reorder(self, parents: Sequence[int]) -> None:
        """Row r takes over what row parents[r] has written; both have read the same source."""
        decoder = self.decoder
        decoder.length[:] = [decoder.length[parent] for parent in parents]
        if decoder.target is not None:
            decoder.target.reorder(parents)
        if decoder.recurrent is not None:
            h, c = decoder.recurrent
            index = list(parents)
            decoder.recurrent = h[:, index], c[:, index]


@dataclass(frozen=True)
class Step:
    """The rows that can write a token now, and what the decoder says about it."""

    rows: list[int]
    logits: Tensor  # [R, V]
    hidden: Tensor  # [R, D] the decoder's state before the output projection
    positions: Tensor  # [R, L, H] the source token each head stands on
    attention: Tensor | None = None  # [R, L, H, N] weights over the source, where asked for

    def best(self, first: int) -> list[int]:
        """The most probable token of each row, from `first` on."""
        logits = self.logits[:, first:]
        if logits.is_cuda:
            return (logits.argmax(-1) + first).tolist()
        found: list[int] = (logits.numpy().argmax(-1) + first).tolist()  # ten times as fast
        return found
