"""Lists of tokens in one array, one after the other: quick to send, to sort and to pad."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np

__all__ = ["Array", "Ragged"]

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Ragged:
    """N lists of tokens."""

    flat: Array  # all tokens
    lengths: Array  # [N]

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> Ragged:
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        flat = np.fromiter(chain.from_iterable(lists), np.int32, int(lengths.sum()))
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

    def _places(self, chosen: Array, width: int) -> tuple[Array, Array]:
        """Of a table of some lists [n, width]: which cells are tokens, and where they are kept."""
        columns = np.arange(width)
        inside = columns < self.lengths[chosen][:, None]
        return inside, (self.starts[chosen][:, None] + columns)[inside]

    def padded(self, chosen: Array, width: int, fill: int) -> Array:
        """Some lists as a table [n, width]."""
        inside, places = self._places(chosen, width)
        table = np.full(inside.shape, fill, dtype=np.int64)
        table[inside] = self.flat[places]
        return table

    def put(self, chosen: Array, table: Array) -> None:
        """The same the other way."""
        inside, places = self._places(chosen, table.shape[1])
        self.flat[places] = table[inside]
