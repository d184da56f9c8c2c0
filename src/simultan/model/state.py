"""What a stream of B rows remembers, and what a step of it gives.

What the policy needs is here, the same for all architectures; what an architecture needs of the
past is its own Memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol, Self

import torch
from torch import Tensor

from simultan.model.cache import Cache
from simultan.model.policy import lookback_start


class Memory(Protocol):
    """An architecture's memory of the source read and of the target written.

    What lies past a row's cursors does not count: who has no more than that needs no commit().
    """

    @property
    def caches(self) -> list[Cache]:
        """What grows with it."""
        ...

    def reset(self, row: int) -> None:
        """The row begins a new sentence."""

    def commit(self, rows: Sequence[int]) -> None:
        """What the last step of these rows has computed counts from now on."""
        return

    def reorder(self, parents: Sequence[int]) -> None:
        """Row r takes over what row parents[r] has written; both have read the same source."""

    def take_over(self, rows: range, other: Self, parent: int, length: int) -> None:
        """These rows have written what a row of another memory has, its last step counted in:
        `length` tokens. They cannot read on."""

    def keep(self, rows: Sequence[int]) -> Tensor | None:
        """What these rows lose with a commit; None: nothing."""
        return None

    def restore(self, rows: Sequence[int], kept: Tensor | None) -> None:
        """These rows have again what was kept."""
        return

    def mark(self, row: int) -> Tensor | None:
        """What reading on would overwrite."""
        return None

    def rewind(self, row: int, tokens: int, kept: Tensor | None) -> None:
        """The row has read so many source tokens, and what mark() gave then."""


# [L][H] of heads that stay undecided: how likely each stops at the tokens up to its position
Shares = list[list[list[float]]]


@dataclass(frozen=True)
class Written:
    """What some rows had written."""

    lengths: list[int]
    positions: list[list[list[int]]]
    shares: list[Shares | None]
    memory: Tensor | None


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a row has read."""

    available: int
    finished: bool
    kept: Tensor | None


@dataclass(frozen=True, slots=True)
class Pending:
    """A step that waits for source in one of the decoder's layers."""

    layer: int
    hidden: Tensor  # [D] what it brought there
    queries: Tensor  # [Q] its queries there
    stopped: list[bool]  # the heads of that layer that need no more source


@dataclass
class State:
    """Committed: length and heads. Of the step under way: stops and pending."""

    memory: Memory
    source: Cache  # keys and values of the encoded source, all layers
    selection: Cache | None  # the keys that heads select by
    layers: int  # that select
    heads: int  # of each of them
    lags: list[int]  # fixed policies: k of each row; 0: the whole source
    lookback: int | None  # source tokens that a stop sees; None: all
    rows: int
    evaluations: int = 0  # decoder layers evaluated, over all rows: the cost of a stream
    available: list[int] = field(init=False)  # source tokens read
    finished: list[bool] = field(init=False)  # the last of them is end-of-sequence
    length: list[int] = field(init=False)  # target tokens written
    scan_from: list[int] = field(init=False)  # no head stops before this source token
    limits: list[int | None] = field(init=False)  # fixed policies: source tokens that are seen
    positions: list[list[list[int]]] = field(init=False)  # [B][L][H] where heads have stopped
    stops: list[list[list[int]]] = field(init=False)  # the same for this step, as far as known
    shares: list[Shares | None] = field(init=False)  # None: all heads have decided
    spread: list[Shares | None] = field(init=False)  # the same for this step
    pending: list[Pending | None] = field(init=False)

    def __post_init__(self) -> None:
        rows = self.rows
        self.available, self.length, self.scan_from = [0] * rows, [0] * rows, [0] * rows
        self.finished = [False] * rows
        self.limits, self.pending = [None] * rows, [None] * rows
        self.shares, self.spread = [None] * rows, [None] * rows
        self.positions = [self._start() for _ in range(rows)]
        self.stops = [self._start() for _ in range(rows)]

    def _start(self) -> list[list[int]]:
        return [[0] * self.heads for _ in range(self.layers)]

    @property
    def source_caches(self) -> list[Cache]:
        return [self.source] if self.selection is None else [self.source, self.selection]

    def slots(self) -> list[int]:
        """Positions that each cache has room for."""
        return [cache.capacity for cache in [*self.source_caches, *self.memory.caches]]

    def make_room(self, slots: int) -> None:
        """Room for so many positions of every row: a cache that grows later holds everybody up."""
        for cache in [*self.source_caches, *self.memory.caches]:
            cache.grow(slots)

    def set_lag(self, row: int, k: int) -> None:
        """Fixed policies: target token i sees the first i + k - 1 source tokens."""
        self.lags[row] = k

    def limit(self, row: int, tokens: int | None) -> None:
        """Fixed policies: until the next call the row sees its first `tokens` source tokens, at
        least one, or all there are once its source has ended; None: what the lag says."""
        self.limits[row] = None if tokens is None else max(1, tokens)

    def skip_to(self, row: int, token: int) -> None:
        """No head of the row stops before this source token any more."""
        self.scan_from[row] = max(self.scan_from[row], token)

    def needed(self, row: int) -> int:
        """The first source token a head may still look at: what lies before it can be dropped."""
        first, shares = min(map(min, self.positions[row])), self.shares[row]
        if shares is not None:
            pairs = zip(chain(*self.positions[row]), chain(*shares), strict=True)
            first = min(stop + 1 - len(some) for stop, some in pairs)
        return lookback_start(max(first, self.scan_from[row]), self.lookback)

    def shares_of(self, row: int) -> Shares:
        """Of this step; a head that has decided stops where it stands."""
        return self.spread[row] or [[[1.0] for _ in heads] for heads in self.stops[row]]

    def reset(self, row: int) -> None:
        """The row begins a new sentence; its lag stays."""
        self.memory.reset(row)
        for cache in self.source_caches:
            cache.reset(row)
        self.available[row] = self.length[row] = self.scan_from[row] = 0
        self.finished[row] = False
        self.limits[row] = self.pending[row] = self.shares[row] = None
        self.positions[row] = self._start()

    def mark(self, row: int) -> Mark:
        """What rewind() needs to make the row forget the source tokens that it reads from now."""
        return Mark(self.available[row], self.finished[row], self.memory.mark(row))

    def rewind(self, row: int, mark: Mark) -> None:
        """The row has read no more than it had at the mark; what it has written stays."""
        self.available[row], self.finished[row] = mark.available, mark.finished
        for cache in self.source_caches:
            cache.ends[row] = mark.available
        self.memory.rewind(row, mark.available, mark.kept)

    def commit(self, rows: Sequence[int]) -> None:
        """The rows have written the token of their last step."""
        for row in rows:
            self.positions[row], self.shares[row] = self.stops[row], self.spread[row]
            self.length[row] += 1
        self.memory.commit(rows)

    def keep(self, rows: Sequence[int]) -> Written:
        """For restore(): tokens may be committed to see what follows, and be taken back."""
        return Written(
            [self.length[row] for row in rows],
            [self.positions[row] for row in rows],
            [self.shares[row] for row in rows],
            self.memory.keep(rows),
        )

    def restore(self, rows: Sequence[int], kept: Written) -> None:
        """What these rows have committed since was never written; what they have read stays."""
        for i, row in enumerate(rows):
            self.length[row], self.positions[row] = kept.lengths[i], kept.positions[i]
            self.shares[row] = kept.shares[i]
        self.memory.restore(rows, kept.memory)

    def has_ended(self, row: int) -> bool:
        """Whether a head of the row's last step stands on the end of the source."""
        return self.finished[row] and self._seen(row) == self.available[row]

    def _seen(self, row: int) -> int:
        """Source tokens that the last step of the row took."""
        return max(map(max, self.stops[row])) + 1

    def take_over(self, rows: range, other: State, parent: int) -> None:
        """These rows go on from the last step of a row of another state, as if that were committed
        and what it has seen of the source were all of it."""
        seen, length = other._seen(parent), other.length[parent] + 1
        for mine, theirs in zip(self.source_caches, other.source_caches, strict=True):
            mine.take_over(rows, theirs, parent, seen)
        self.memory.take_over(rows, other.memory, parent, length)
        for row in rows:
            self.available[row], self.finished[row], self.length[row] = seen, True, length
            self.positions[row], self.shares[row] = other.stops[parent], other.spread[parent]
            self.scan_from[row], self.lags[row] = other.scan_from[parent], other.lags[parent]
            self.pending[row] = self.limits[row] = None

    def reorder(self, parents: Sequence[int]) -> None:
        """Row r takes over what row parents[r] has written; both have read the same source."""
        self.length = [self.length[parent] for parent in parents]
        self.positions = [self.positions[parent] for parent in parents]
        self.shares = [self.shares[parent] for parent in parents]
        self.memory.reorder(parents)


@dataclass(frozen=True)
class Step:
    """The rows that can write a token now, and what the decoder says about it."""

    rows: list[int]
    logits: Tensor  # [R, V]
    hidden: Tensor  # [R, D] the decoder's state before the output projection
    positions: Tensor  # [R, L, H] the source token each head stands on
    attention: Tensor | None = None  # [R, L, H, N] weights over the source, where asked for
    context: Tensor | None = None  # [R, D] what the last layer's has found, where asked for

    def best(self, first: int) -> list[int]:
        """The most probable token of each row, from `first` on."""
        logits = self.logits[:, first:]
        if logits.is_cuda:
            return (logits.argmax(-1) + first).tolist()
        found: list[int] = (logits.numpy().argmax(-1) + first).tolist()  # ten times as fast
        return found


def table(positions: Sequence[Sequence[Sequence[int]]], state: State, like: Tensor) -> Tensor:
    """Positions of some rows as a tensor [R, L, H]."""
    flat = torch.tensor(positions, dtype=torch.long, device=like.device)
    return flat.view(len(positions), state.layers, state.heads)
