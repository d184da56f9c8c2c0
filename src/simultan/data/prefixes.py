"""Prefix pairs: training pairs cut short, so that a model learns to translate unfinished sentences.

Both sides are cut after a word, in proportion to their lengths, and neither has an end: that is
what a stream shows a model which was trained on whole sentences.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simultan.data.codec import Codec
from simultan.data.vocabulary import PAD, Vocabulary

Ints = NDArray[Any]


class Prefixes:
    """Cuts a share of the pairs of a batch."""

    def __init__(self, share: float, codec: Codec) -> None:
        self.share = share
        self.source_ends = _word_ends(codec.source_vocabulary)
        self.target_ends = _word_ends(codec.target_vocabulary)

    def cut(
        self,
        source: Ints,
        source_lengths: Ints,
        target: Ints,
        target_lengths: Ints,
        random: np.random.Generator,
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Padded tokens [B, N] and lengths [B] of both sides, the chosen pairs cut."""
        chosen = random.random(len(source)) < self.share
        part = random.random(len(source))
        heard = _places(source, source_lengths, part, self.source_ends)
        part = heard / np.maximum(1, source_lengths - 1)
        said = _places(target, target_lengths, part, self.target_ends)
        chosen &= (heard > 0) & (said > 0)
        return (
            *_shorten(source, source_lengths, heard, chosen),
            *_shorten(target, target_lengths, said, chosen),
        )


def _word_ends(vocabulary: Vocabulary) -> Ints:
    return np.array([vocabulary.ends_word(token) for token in range(len(vocabulary))])


def _places(tokens: Ints, lengths: Ints, part: Ints, ends: Ints) -> Ints:
    """Tokens up to the first word that ends at this part of the sentence or after; 0: none does."""
    count = np.arange(1, tokens.shape[1] + 1)
    inside = count < lengths[:, None]  # the end of the sentence is no word
    fits = ends[tokens] & inside & (count >= part[:, None] * (lengths[:, None] - 1))
    return np.where(fits.any(1), fits.argmax(1) + 1, 0)


def _shorten(tokens: Ints, lengths: Ints, places: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    lengths = np.where(chosen, places, lengths)
    kept = np.arange(tokens.shape[1]) < lengths[:, None]
    return np.where(kept, tokens, PAD), lengths
