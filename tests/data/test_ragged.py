"""Lists in one array: there and back."""

from __future__ import annotations

import numpy as np

from simultan.data.ragged import Ragged

LISTS = [[5, 6, 7], [], [8], [9, 10]]


def test_lists() -> None:
    ragged = Ragged.of(LISTS)
    assert ragged.lists() == LISTS
    assert [ragged[i] for i in range(len(ragged))] == LISTS
    assert ragged.part(1, 3).lists() == LISTS[1:3]
    assert Ragged.join([ragged.part(0, 2), ragged.part(2, 4)]).lists() == LISTS
    assert len(Ragged.join([])) == len(Ragged.of([])) == 0


def test_tables() -> None:
    ragged, chosen = Ragged.of(LISTS), np.array([3, 0, 1])
    table = ragged.padded(chosen, 4, 2)
    assert table.tolist() == [[9, 10, 2, 2], [5, 6, 7, 2], [2, 2, 2, 2]]
    copy = Ragged.empty(ragged.lengths)
    copy.put(chosen, table)
    copy.put(np.array([2]), np.array([[8]]))
    assert copy.lists() == LISTS
