"""Sentences as numbers of distinct words: text is read once, each word handled once."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simultan.data.filters import Filters
from simultan.data.formats import read_pairs
from simultan.data.ragged import Ragged
from simultan.data.shards import smallest
from simultan.data.sources import Progress, Skips, TextPair
from simultan.data.speech import Speech, read_documents
from simultan.data.words import split_words

END = "\n"  # the word that ends a sentence; no text word is a line feed


class Index:
    """Sentences of one side as numbers of distinct words; word 0 ends a sentence."""

    def __init__(self, language: str = "") -> None:
        self.language = language
        self.numbers: defaultdict[str, int] = defaultdict()
        self.numbers.default_factory = self.numbers.__len__
        self.numbers[END]  # takes number 0
        self.words = array("I")
        self.offsets = array("q", [0])

    def add(self, text: str) -> None:
        self.words.extend(map(self.numbers.__getitem__, split_words(text, self.language)))
        self.words.append(0)
        self.offsets.append(len(self.words))

    def counts(self, begin: int = 0, end: int | None = None) -> NDArray[Any]:
        words = np.frombuffer(self.words, np.uint32)[
            self.offsets[begin] : self.offsets[len(self.offsets) - 1 if end is None else end]
        ]
        return np.bincount(words, minlength=len(self.numbers))


@dataclass
class Split:
    """One split as read."""

    source: Index
    target: Index
    places: list[tuple[TextPair, array[int]]]  # the line number of each sentence, by file
    text: list[tuple[str, str]]  # raw sentences; valid and test only

    def side(self, name: str) -> Index:
        return self.source if name == "source" else self.target


def read_split(
    pairs: Sequence[TextPair],
    skips: Skips,
    report: Progress,
    keep_text: bool = False,
    speech: Speech | None = None,
    filters: Filters | None = None,
    columns: str = "",
    languages: tuple[str, str] = ("", ""),
) -> Split:
    """Read text; training text may be filtered, and changed as `speech` says."""
    source_index, target_index = (Index(language) for language in languages)
    split, speech = Split(source_index, target_index, [], []), speech or Speech()
    for place, pair in enumerate(pairs):
        numbers = array("q")
        read = read_pairs(pair, skips, report, columns)
        if filters is not None:
            read = filters.apply(read, pair, skips)
        for number, source, target in speech.change(read, place, read_documents(pair)):
            split.source.add(f"{pair.tag} {source}" if pair.tag else source)
            split.target.add(target)
            numbers.append(number)
            if keep_text:
                split.text.append((source, target))
        split.places.append((pair, numbers))
    return split


def keep(
    split: Split, tables: list[Ragged], samples: int, max_length: int | None, skips: Skips
) -> NDArray[Any]:
    """Which sentences have a token on both sides and no side longer than the limit."""
    places = [(pair, number) for pair, numbers in split.places for number in numbers]
    kept = np.ones(len(places), bool)

    def drop(wrong: NDArray[Any], side: int, reason: str) -> None:
        for place in np.flatnonzero(kept & wrong):
            pair, number = places[place]
            path = (pair.source, pair.target)[side]
            if max_length is None:
                raise ValueError(f"{path}:{number}: empty but for invisible characters")
            skips.add(reason, path, number)
            kept[place] = False

    longest = []
    for side, (index, table) in enumerate(zip((split.source, split.target), tables, strict=True)):
        lengths = table.lengths.reshape(-1, samples)
        words = np.frombuffer(index.words, np.uint32)
        starts = np.frombuffer(index.offsets, np.int64)[:-1]
        longest.append(np.add.reduceat(lengths.max(1)[words], starts))
        drop(np.add.reduceat(lengths.min(1)[words], starts) <= 1, side, "empty")
    if max_length is not None:
        for side, total in enumerate(longest):
            drop(total > max_length, side, f"longer than {max_length} tokens")
    if not kept.any():
        raise ValueError(f"{split.places[0][0].source}: no usable pair is left")
    return kept


def select(index: Index, kept: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    words = np.frombuffer(index.words, np.uint32)
    offsets = np.frombuffer(index.offsets, np.int64)
    counts = np.diff(offsets)
    if not kept.all():
        words = words[np.repeat(kept, counts)]
    selected = np.zeros(int(kept.sum()) + 1, np.int64)
    np.cumsum(counts[kept], out=selected[1:])
    return words.astype(smallest(len(index.numbers)), copy=False), selected
