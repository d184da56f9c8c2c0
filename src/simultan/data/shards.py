"""One side of a corpus on disk: memory-mapped token ids, or words and sampled pieces of each.

A sentence's tokens end in end-of-sequence. With BPE-dropout the sentences are stored as
words, beside V sampled segmentations of each word; epoch e draws, for the word at position n,

    segmentation = hash(seed, e, n) mod V

so every epoch sees another segmentation of the corpus at no cost on disk.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simultan.data.ragged import Ragged
from simultan.data.vocabulary import PAD

Ints = NDArray[Any]
_CHUNK = 1 << 20  # words handled at a time: bounds memory, stays in cache


def smallest(size: int) -> type[np.uint16] | type[np.uint32]:
    """The type that holds ids below size."""
    return np.uint16 if size <= 1 << 16 else np.uint32


def _ragged(flat: Ints, starts: Ints) -> Ragged:
    return Ragged(flat, np.diff(starts).astype(np.int32))


class TokenSide:
    """Token ids as they are."""

    varies = False  # lengths are the same in every epoch

    def __init__(self, tokens: Ints, offsets: Ints) -> None:
        self._table = _ragged(tokens, offsets)

    def __len__(self) -> int:
        return len(self._table.lengths)

    def lengths(self, epoch: int = 0) -> Ints:
        return self._table.lengths.astype(np.int64)

    def rows(self, indices: Ints, width: int, epoch: int = 0) -> Ints:
        return self._table.padded(indices, width, PAD)


class WordSide:
    """Words, each with `samples` segmentations; entry word * samples + k is its k-th."""

    varies = True

    def __init__(self, words: Ints, offsets: Ints, pieces: Ragged, samples: int, seed: int) -> None:
        self._table, self._pieces = _ragged(words, offsets), pieces
        self._samples, self._seed = samples, seed

    def __len__(self) -> int:
        return len(self._table.lengths)

    def lengths(self, epoch: int = 0) -> Ints:
        offsets, result = self._table.starts, np.empty(len(self), np.int64)
        first = 0
        while first < len(self):
            last = int(np.searchsorted(offsets, offsets[first] + _CHUNK))
            last = min(max(last, first + 1), len(self))
            positions = np.arange(offsets[first], offsets[last])
            words = self._table.flat[offsets[first] : offsets[last]]
            lengths = self._pieces.lengths[self._entries(words, positions, epoch)]
            starts = offsets[first:last] - offsets[first]
            result[first:last] = np.add.reduceat(lengths, starts)  # no sentence is empty
            first = last
        return result

    def rows(self, indices: Ints, width: int, epoch: int = 0) -> Ints:
        places, counts = self._table.places(indices), self._table.lengths[indices]
        entries = self._entries(self._table.flat[places], places, epoch)
        lengths = np.add.reduceat(self._pieces.lengths[entries], np.cumsum(counts) - counts)
        drawn = Ragged(self._pieces.gather(entries), lengths)
        return drawn.padded(np.arange(len(drawn)), width, PAD)

    def _entries(self, words: Ints, positions: Ints, epoch: int) -> Ints:
        salt = np.uint64((self._seed * 0x9E3779B97F4A7C15 + epoch * 0xD1B54A32D192ED03) % (1 << 64))
        mixed = (positions.astype(np.uint64) + salt) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed >>= np.uint64(32)
        draw = (mixed % np.uint64(self._samples)).astype(np.int64)
        return words.astype(np.int64) * self._samples + draw


def write_side(
    prefix: Path, words: Ints, offsets: Ints, pieces: Ragged, samples: int, seed: int
) -> int:
    """Write one side; with one sample as tokens, otherwise as words. Returns the tokens."""
    if samples > 1:
        _save(prefix, "words", words)
        _save(prefix, "offsets", offsets)
        _save(prefix, "pieces", pieces.flat)
        _save(prefix, "starts", pieces.starts.astype(np.uint32))
        _save(prefix, "sampling", np.array([samples, seed], np.int64))
        return int(WordSide(words, offsets, pieces, samples, seed).lengths().sum())
    counts = pieces.lengths[words]
    ends = np.zeros(len(words) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    starts = ends[offsets]
    tokens = np.lib.format.open_memmap(
        f"{prefix}.tokens.npy", mode="w+", dtype=pieces.flat.dtype, shape=(int(ends[-1]),)
    )
    for first in range(0, len(words), _CHUNK):
        last = min(first + _CHUNK, len(words))
        tokens[ends[first] : ends[last]] = pieces.gather(words[first:last])
    tokens.flush()
    _save(prefix, "offsets", starts)
    return int(ends[-1])


def open_side(prefix: Path) -> TokenSide | WordSide:
    """A side as written, its large arrays memory-mapped."""
    offsets = _load(prefix, "offsets")
    if Path(f"{prefix}.tokens.npy").exists():
        return TokenSide(_load(prefix, "tokens"), offsets)
    samples, seed = (int(n) for n in _load(prefix, "sampling"))
    pieces = _ragged(np.array(_load(prefix, "pieces")), _load(prefix, "starts").astype(np.int64))
    return WordSide(_load(prefix, "words"), offsets, pieces, samples, seed)


def _save(prefix: Path, name: str, array: Ints) -> None:
    np.save(f"{prefix}.{name}.npy", array)


def _load(prefix: Path, name: str) -> Ints:
    path = Path(f"{prefix}.{name}.npy")
    if not path.exists():
        raise FileNotFoundError(f"{path}: not there; run `simultan prepare` again")
    return np.load(path, mmap_mode="r", allow_pickle=False)


class Corpus:
    """One split of a prepared folder, memory-mapped."""

    def __init__(self, folder: str | Path, split: str = "train") -> None:
        folder = Path(folder)
        try:
            self.prepared = json.loads((folder / "prepared.json").read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{folder}: not a prepared corpus (no prepared.json); run `simultan prepare`"
            ) from error
        if split not in self.prepared["pairs"]:
            raise ValueError(f"{folder}: prepared without a {split} set")
        self.folder, self.split = folder, split
        self.source = open_side(folder / f"{split}.source")
        self.target = open_side(folder / f"{split}.target")
        if not len(self.source) == len(self.target) == self.prepared["pairs"][split]:
            raise ValueError(f"{folder}: the {split} shards are damaged; run `simultan prepare`")

    def __len__(self) -> int:
        return len(self.source)

    @property
    def weights(self) -> list[tuple[int, float]]:
        """Pairs and weight of each training source, in the order of the shard."""
        if self.split != "train":
            return [(len(self), 1.0)]
        return [(source["pairs"], source["weight"]) for source in self.prepared["sources"]]

    def text(self) -> tuple[list[str], list[str]]:
        """Raw source and target sentences; valid and test only."""
        sides = []
        for side in ("source", "target"):
            path = self.folder / f"{self.split}.{side}.txt"
            if not path.exists():
                raise FileNotFoundError(f"{path}: not there; only valid and test keep their text")
            sides.append(path.read_text(encoding="utf-8").removesuffix("\n").split("\n"))
        return sides[0], sides[1]
