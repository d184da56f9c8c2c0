"""Put a stream's words back into the sentences of a reference, with as few word errors as possible.

Of all ways to cut the written words at the reference's sentence ends, the one with the smallest
edit distance is taken (minimum word error rate, Matusov et al. 2005): the sum over sentences is
the edit distance of the two whole texts, so one alignment of them gives all the cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

BAND = 2_000  # words to either side of the diagonal: text lost or added is seldom that long
_SKIP, _INSERT = 1, 2  # a reference word that nothing stands for; a written word too many


def resegment(words: Sequence[str], sentences: Sequence[str], band: int = BAND) -> list[int]:
    """For each reference sentence, the number of written words up to its end.

    Words are compared without case and punctuation: they must fit, not be equal to the letter.
    """
    if not sentences:
        raise ValueError("no reference sentence to put words into")
    reference = [_plain(word) for sentence in sentences for word in sentence.split()]
    ends = list(accumulate(len(sentence.split()) for sentence in sentences))
    cuts = _align([_plain(word) for word in words], reference, band)
    found = [cuts[end] for end in ends]
    found[-1] = len(words)  # what comes after the last sentence belongs to it
    return found


def _plain(word: str) -> str:
    return "".join(letter for letter in word.lower() if letter.isalnum()) or word


def _align(words: list[str], reference: list[str], band: int) -> list[int]:
    """For each number of reference words, how many written words stand for them."""
    written, wanted = len(words), len(reference)
    numbers = {word: number for number, word in enumerate({*words, *reference})}
    hypothesis = np.array([numbers[word] for word in words], dtype=np.int64)
    width = min(written + 1, 2 * band + abs(written - wanted) + 1)
    # row i of the table holds the columns starts[i], starts[i] + 1, ... of the whole one
    starts = [
        min(max(0, i * written // max(wanted, 1) - width // 2), written + 1 - width)
        for i in range(wanted + 1)
    ]
    moves = np.zeros((wanted + 1, width), dtype=np.uint8)
    moves[0] = _INSERT
    columns = np.arange(width, dtype=np.int64)
    costs = columns + starts[0]
    for i, word in enumerate(reference, 1):
        costs, moves[i] = _row(
            costs, starts[i] - starts[i - 1], hypothesis, numbers[word], starts[i]
        )
    cuts = [0] * (wanted + 1)
    i, j = wanted, written
    cuts[i] = j
    while i or j:
        move = moves[i, j - starts[i]] if i and j else _SKIP if i else _INSERT
        if move != _INSERT:
            i -= 1
        if move != _SKIP:
            j -= 1
        if move != _INSERT:
            cuts[i] = j
    return cuts


def _row(
    above: NDArray[np.int64], shift: int, hypothesis: NDArray[np.int64], word: int, start: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The next row of costs, `shift` columns further on, and the move that led to each."""
    width = len(above)
    far = np.int64(1 << 40)
    padded = np.concatenate([[far], above, np.full(shift, far)])
    skip = padded[1 + shift : 1 + shift + width] + 1
    match = padded[shift : shift + width].copy()
    first = max(start - 1, 0)
    differs = hypothesis[first : start + width - 1] != word
    match[width - len(differs) :] += differs
    if start == 0:
        match[0] = far
    moves = np.where(match <= skip, 0, _SKIP).astype(np.uint8)
    best = np.minimum(match, skip)
    # a written word too many costs one: the best of all columns to the left, in one pass
    columns = np.arange(width, dtype=np.int64)
    costs = np.minimum.accumulate(best - columns) + columns
    moves[costs < best] = _INSERT
    return costs, moves
