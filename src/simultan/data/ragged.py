"""Lists of tokens in one array, one after the other: quick to send, to sort and to pad."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Ragged:
    """N lists of tokens."""

    flat: Array  # all tokens
    lengths: Array  # [N]

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]], kind: type[np.integer[Any]] = np.int32) -> Ragged:
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        flat = np.fromiter(chain.from_iterable(lists), kind, int(lengths.sum()))
        return cls(flat, lengths)

    @classmethod
    def join(cls, parts: Iterable[Ragged]) -> Ragged:
        """All lists of all parts."""
        parts = [cls.of([]), *parts]
        flat, lengths = ([getattr(part, name) for part in parts] for name in ("flat", "lengths"))
        return cls(np.concatenate(flat), np.concatenate(lengths))

    @classmethod
    def empty(cls, lengths: Array) -> Ragged:
        """Lists of these lengths, to be put in."""
        return cls(np.zeros(int(lengths.sum()), np.int32), lengths)

    @cached_property
    def starts(self) -> Array:
        """Where each list begins, and where the last one ends [N + 1]."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths)])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> list[int]:
        found: list[int] = self.flat[self.starts[index] : self.starts[index + 1]].tolist()
        return found

    def part(self, start: int, stop: int) -> Ragged:
        """The lists from `start` to `stop`."""
        return Ragged(self.flat[self.starts[start] : self.starts[stop]], self.lengths[start:stop])

    def lists(self) -> list[list[int]]:
        flat, ends = self.flat.tolist(), self.starts.tolist()
        return [flat[start:stop] for start, stop in pairwise(ends)]

    def places(self, chosen: Array) -> Array:
        """Where the tokens of some lists stand in `flat`, list after list."""
        lengths = self.lengths[chosen]
        shift = self.starts[chosen] - (np.cumsum(lengths) - lengths)
        return np.repeat(shift, lengths) + np.arange(lengths.sum())

    def gather(self, chosen: Array) -> Array:
        """The tokens of some lists, list after list."""
        return self.flat[self.places(chosen)]

    def _cells(self, chosen: Array, width: int) -> Array:
        """Which cells of a table of some lists [n, width] are tokens."""
        return np.arange(width) < self.lengths[chosen][:, None]

    def padded(self, chosen: Array, width: int, fill: int) -> Array:
        """Some lists as a table [n, width], in which the longest has room."""
        table = np.full((len(chosen), width), fill, dtype=np.int64)
        table[self._cells(chosen, width)] = self.gather(chosen)
        return table

    def put(self, chosen: Array, table: Array) -> None:
        """The same the other way."""
        self.flat[self.places(chosen)] = table[self._cells(chosen, table.shape[1])]
