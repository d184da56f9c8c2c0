"""Keys and values of all layers, with a leading row dimension and per-row cursors.

A buffer may hold anything past a cursor; the cursor is the truth. A position is absolute; the
slot it lies in is position - base, because a windowed model drops what it can no longer see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from simultan.model.kernels import Reach
from simultan.model.policy import additive, visible

SLOTS = 32  # of a new cache
FEW = 64  # slots of each row that are always kept


class Cache:
    """Of each layer a tensor [B, N, K, H, D]: K kinds, such as keys and values.

    What belongs to a position lies side by side, as a projection gives it.
    """

    def __init__(
        self, layers: int, kinds: int, rows: int, heads: int, size: int, like: Tensor
    ) -> None:
        self.layers = [like.new_zeros(rows, SLOTS, kinds, heads, size) for _ in range(layers)]
        self.base = [0] * rows  # the position in slot 0 of each row
        self.ends = [0] * rows  # the position after the last that was written
        self.all_rows = list(range(rows))

    @property
    def capacity(self) -> int:
        return self.layers[0].shape[1]

    @property
    def sizes(self) -> list[int]:
        """Numbers that belong to a position, of each layer."""
        return [math.prod(layer.shape[2:]) for layer in self.layers]

    def reset(self, row: int) -> None:
        """Forget a row. Memory far beyond what the other rows need is given back."""
        self.base[row] = self.ends[row] = 0
        if self.capacity <= 4 * FEW:
            return
        needed = max(FEW, *(end - base for end, base in zip(self.ends, self.base, strict=True)))
        if self.capacity > 4 * needed:
            self._resize(2 * needed)

    def grow(self, slots: int) -> None:
        """Room for at least so many positions of every row."""
        if slots > self.capacity:
            self._resize(slots)

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
            for layer in self.layers:
                kept = layer[row, slots:].clone()
                layer[row, : self.capacity - slots] = kept
            self.base[row] += slots

    def _resize(self, capacity: int) -> None:
        rows, old, *position = self.layers[0].shape
        kept = min(old, capacity)
        for index, layer in enumerate(self.layers):
            new = layer.new_zeros(rows, capacity, *position)
            new[:, :kept] = layer[:, :kept]
            self.layers[index] = new

    def write(self, layer: int, kind: int, span: Span, new: Tensor) -> None:
        """Put new [R, C, k, H, D] into a span: this kind and the k - 1 after it."""
        part = self.layers[layer]
        if new.shape[2] < part.shape[2]:
            part = part.narrow(2, kind, new.shape[2])
        if not span.alike and len(span.rows) > 1:
            part[span.row_index, span.slot_index] = new
            return
        if not span.alike:
            part = part.narrow(0, span.rows[0], 1)
        part.narrow(1, span.slots[0], span.count).copy_(new)

    def write_layers(self, span: Span, parts: Iterator[Tensor]) -> None:
        """Put the next parts [R, C, k H D] into a span: all kinds of all layers."""
        kinds, heads, size = self.layers[0].shape[2:]
        for layer in range(len(self.layers)):
            kind = 0
            while kind < kinds:
                new = next(parts).unflatten(-1, (-1, heads, size))
                self.write(layer, kind, span, new)
                kind += new.shape[2]

    def read(self, layer: int, rows: Sequence[int], starts: Sequence[int], count: int) -> Tensor:
        """`count` slots of each row, from its start on: [R, count, K, H, D], a view if possible."""
        data = self.layers[layer]
        if rows == self.all_rows and (len(rows) == 1 or len(set(starts)) == 1):
            return data.narrow(1, starts[0], count)
        if len(rows) == 1:
            return data.narrow(0, rows[0], 1).narrow(1, starts[0], count)
        first = [row * data.shape[1] + start for row, start in zip(rows, starts, strict=True)]
        slots = torch.tensor(first, device=data.device)[:, None]
        slots = slots + torch.arange(count, device=data.device)
        found = data.flatten(0, 1).index_select(0, slots.flatten())
        return found.unflatten(0, (len(rows), count))

    def take_over(self, rows: range, other: Cache, parent: int, end: int) -> None:
        """These rows become copies of a row of another cache, up to a position."""
        base = other.base[parent]
        slots = end - base
        if slots > self.capacity:
            self._resize(max(2 * self.capacity, slots))
        for mine, theirs in zip(self.layers, other.layers, strict=True):
            mine[rows.start : rows.stop, :slots] = theirs[parent, :slots]
        for row in rows:
            self.base[row], self.ends[row] = base, end

    def reorder(self, parents: Sequence[int]) -> None:
        """Row r takes over what row parents[r] has."""
        moved = [row for row, parent in enumerate(parents) if row != parent]
        if not moved:
            return
        sources = [parents[row] for row in moved]
        self.base = [self.base[parent] for parent in parents]
        self.ends = [self.ends[parent] for parent in parents]
        used = max(self.ends[row] - self.base[row] for row in moved)
        to, of = (torch.tensor(rows, device=self.layers[0].device) for rows in (moved, sources))
        for layer in self.layers:
            layer[to, :used] = layer[of, :used]


@dataclass(frozen=True)
class Span:
    """`count` new positions of some rows of a cache, from `starts` on, and what they see of it.

    A row may be there more than once, with one position after the other.
    """

    cache: Cache
    rows: list[int]
    starts: list[int]
    count: int
    window: int | None = None  # positions that each new one sees; None: all before it

    @cached_property
    def slots(self) -> list[int]:
        base = self.cache.base
        return [start - base[row] for row, start in zip(self.rows, self.starts, strict=True)]

    @cached_property
    def alike(self) -> bool:
        """All rows of the cache, and the same slots in each."""
        return self.rows == self.cache.all_rows and self.together

    @cached_property
    def together(self) -> bool:
        """The same slots in each row."""
        return len(self.rows) == 1 or len(set(self.slots)) == 1

    @cached_property
    def row_index(self) -> Tensor:  # [R, 1]
        return torch.tensor(self.rows, device=self.cache.layers[0].device)[:, None]

    @cached_property
    def slot_index(self) -> Tensor:  # [R, C]
        first = torch.tensor(self.slots, device=self.cache.layers[0].device)[:, None]
        return first + torch.arange(self.count, device=first.device)

    @cached_property
    def positions(self) -> Tensor:  # [R, C], absolute
        first = torch.tensor(self.starts, device=self.cache.layers[0].device)[:, None]
        return first + torch.arange(self.count, device=first.device)

    @cached_property
    def first(self) -> int:
        """The first slot that a new position sees."""
        return 0 if self.window is None else max(0, min(self.slots) - self.window + 1)

    @cached_property
    def mask(self) -> Tensor | None:
        """[R, 1, C, N], 0 or -inf, from the first slot on; None: all see all."""
        if self.count == 1 and self.together:
            return None
        seen = visible(self.slot_index - self.first, self.length, self.window)
        return additive(seen, self.cache.layers[0])[:, None]

    @cached_property
    def length(self) -> int:
        """Slots that new positions see, from the first on."""
        return max(self.slots) + self.count - self.first

    @cached_property
    def reach(self) -> Reach:
        """The same for each row, position and head."""
        heads, rows, ends = self.cache.layers[0].shape[3], [], []
        for row, slot in zip(self.rows, self.slots, strict=True):
            for end in range(slot + 1, slot + self.count + 1):
                rows.append(row)
                ends += [end] * heads
        window = self.window or max(ends)
        return Reach(rows, [max(0, end - window) for end in ends], ends)

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        """All keys and values that can be seen [R, N, H, D]."""
        first = [self.first] * len(self.rows)
        keys, values = self.cache.read(layer, self.rows, first, self.length).unbind(2)
        return keys, values
