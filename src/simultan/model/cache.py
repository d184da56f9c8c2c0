"""Keys and values of all layers, with a leading row dimension and per-row cursors.

A buffer may hold anything past a cursor; the cursor is the truth. A position is absolute; the
slot it lies in is position - base, because a windowed model drops what it can no longer see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from simultan.model.policy import additive, visible

__all__ = ["Cache", "Span"]

SLOTS = 32  # of a new cache
FEW = 64  # slots of each row that are always kept


class Cache:
    """data [L, K, B, H, N, D]: K tensors a layer, such as keys and values.

    In memory the heads of a position lie side by side, as a projection gives them.
    """

    def __init__(
        self, layers: int, kinds: int, rows: int, heads: int, size: int, like: Tensor
    ) -> None:
        self.data = like.new_zeros(layers, kinds, rows, SLOTS, heads, size).transpose(3, 4)
        self.base = [0] * rows  # the position in slot 0 of each row
        self.ends = [0] * rows  # the position after the last that was written
        self.all_rows = list(range(rows))

    @property
    def capacity(self) -> int:
        return self.data.shape[4]

    def reset(self, row: int) -> None:
        """Forget a row. Memory far beyond what the other rows need is given back."""
        self.base[row] = self.ends[row] = 0
        if self.capacity <= 4 * FEW:
            return
        needed = max(FEW, *(end - base for end, base in zip(self.ends, self.base, strict=True)))
        if self.capacity > 4 * needed:
            self._resize(2 * needed)

    def reserve(
        self, rows: Sequence[int], ends: Sequence[int], keep_from: Callable[[int], int]
    ) -> None:
        """Room for positions up to `ends`; what lies before keep_from(row) may be dropped."""
        wanted = 0
        for row, end in zip(rows, ends, strict=True):
            self.ends[row] = max(self.ends[row], end)
            if end - self.base[row] > self.capacity:
                self._drop(row, keep_from(row) - self.base[row])
                wanted = max(wanted, end - self.base[row])
        if wanted > self.capacity:
            self._resize(max(2 * self.capacity, wanted))

    def _drop(self, row: int, slots: int) -> None:
        """Forget the first slots of a row, unless there are few: moving the rest costs time."""
        if 2 * slots >= self.capacity:
            kept = self.data[:, :, row, :, slots:].clone()
            self.data[:, :, row, :, : self.capacity - slots] = kept
            self.base[row] += slots

    def _resize(self, capacity: int) -> None:
        *shape, heads, old, size = self.data.shape
        data = self.data.new_zeros(*shape, capacity, heads, size).transpose(3, 4)
        kept = min(old, capacity)
        data[..., :kept, :] = self.data[..., :kept, :]
        self.data = data

    def write(self, layer: int, kind: int, span: Span, new: Tensor) -> None:
        """Put new [R, C, k, H, D] into a span: this kind and the k - 1 after it."""
        kinds = slice(kind, kind + new.shape[2])
        if len(span.rows) == 1:
            part = self.data[layer, kinds, span.rows[0]].unsqueeze(1)
        elif span.alike:
            part = self.data[layer, kinds]
        else:
            self.data[layer, kinds][:, span.row_index, :, span.slot_index] = new
            return
        part.narrow(3, span.slots[0], span.count).copy_(new.permute(2, 0, 3, 1, 4))

    def write_layers(self, span: Span, parts: Iterator[Tensor]) -> None:
        """Put the next L K parts [R, C, H D] into a span: all kinds of all layers."""
        layers, kinds, _, heads, _, _ = self.data.shape
        for layer in range(layers):
            for kind in range(kinds):
                new = next(parts).unflatten(-1, (1, heads, -1))
                self.write(layer, kind, span, new)

    def read(self, layer: int, rows: Sequence[int], starts: Sequence[int], count: int) -> Tensor:
        """`count` slots of each row, from its start on: [K, R, H, count, D], a view if possible."""
        data = self.data[layer]
        if len(rows) == 1:
            return data[:, rows[0] : rows[0] + 1].narrow(3, starts[0], count)
        if rows == self.all_rows and len(set(starts)) == 1:
            return data.narrow(3, starts[0], count)
        tokens = data.transpose(2, 3)  # as they lie: copied in long pieces
        if data.is_cuda:
            slots = torch.tensor(starts, device=data.device)[:, None]
            slots = slots + torch.arange(count, device=data.device)
            found = tokens[:, torch.tensor(rows, device=data.device)[:, None], slots]
        else:
            pieces = [
                tokens.select(1, row).narrow(1, start, count)
                for row, start in zip(rows, starts, strict=True)
            ]
            found = torch.stack(pieces, 1)
        return found.transpose(2, 3)

    def reorder(self, parents: Sequence[int]) -> None:
        """Row r takes over what row parents[r] has."""
        self.base = [self.base[parent] for parent in parents]
        self.ends = [self.ends[parent] for parent in parents]
        index = torch.tensor(parents, device=self.data.device)
        self.data = self.data.transpose(3, 4)[:, :, index].transpose(3, 4)


@dataclass(frozen=True)
class Span:
    """`count` new positions of some rows of a cache, from `starts` on, and what they see of it.

    A row may be there more than once, with one position after the other.
    """

    cache: Cache
    rows: Sequence[int]
    starts: Sequence[int]
    count: int
    window: int | None = None  # positions that each new one sees; None: all before it

    @cached_property
    def slots(self) -> list[int]:
        base = self.cache.base
        return [start - base[row] for row, start in zip(self.rows, self.starts, strict=True)]

    @cached_property
    def alike(self) -> bool:
        """All rows of the cache, and the same slots in each."""
        return len(set(self.slots)) == 1 and list(self.rows) == self.cache.all_rows

    @cached_property
    def row_index(self) -> Tensor:  # [R, 1]
        return torch.tensor(self.rows, device=self.cache.data.device)[:, None]

    @cached_property
    def slot_index(self) -> Tensor:  # [R, C]
        first = torch.tensor(self.slots, device=self.cache.data.device)[:, None]
        return first + torch.arange(self.count, device=first.device)

    @cached_property
    def positions(self) -> Tensor:  # [R, C], absolute
        first = torch.tensor(self.starts, device=self.cache.data.device)[:, None]
        return first + torch.arange(self.count, device=first.device)

    @cached_property
    def first(self) -> int:
        """The first slot that a new position sees."""
        return 0 if self.window is None else max(0, min(self.slots) - self.window + 1)

    @cached_property
    def mask(self) -> Tensor | None:
        """[R, 1, C, N], 0 or -inf, from the first slot on; None: all see all."""
        if self.count == 1 and len(set(self.slots)) == 1:
            return None
        length = max(self.slots) + self.count - self.first
        seen = visible(self.slot_index - self.first, length, self.window)
        return additive(seen, self.cache.data)[:, None]

    def append(self, layer: int, new: Tensor) -> tuple[Tensor, Tensor]:
        """Write new keys and values [R, C, 2, H, D]; all that can be seen [R, H, N, D]."""
        self.cache.write(layer, 0, self, new)
        length = max(self.slots) + self.count - self.first
        keys, values = self.cache.read(layer, self.rows, [self.first] * len(self.rows), length)
        return keys, values
