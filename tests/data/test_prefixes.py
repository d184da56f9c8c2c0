"""Pairs that are cut: by hand, and as batches of a prepared corpus."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from simultan.config import DataConfig
from simultan.data.batching import Batches
from simultan.data.codec import Codec
from simultan.data.corpus import prepare
from simultan.data.prefixes import Prefixes
from simultan.data.shards import Corpus
from simultan.data.sources import TextPair
from simultan.data.text import MARKER, Pipeline
from simultan.data.vocabulary import BYTES, EOS, PAD, SPECIAL, Vocabulary

SUBWORDS = Vocabulary([*SPECIAL, *BYTES, "x", "u", "a" + MARKER, "b" + MARKER], [])
X, U, A, B = range(len(SUBWORDS) - 4, len(SUBWORDS))
CODEC = Codec(Pipeline("bpe"), SUBWORDS, SUBWORDS)


class Chosen(np.random.Generator):
    """Draws these numbers."""

    def __init__(self, *draws: list[float]) -> None:
        super().__init__(np.random.PCG64(1))
        self.draws = list(draws)

    def random(self, size: int) -> np.ndarray:  # type: ignore[override]
        return np.array(self.draws.pop(0))


def test_by_hand() -> None:
    source = np.array([[A, X, B, A, A, EOS], [A, A, A, EOS, PAD, PAD], [X, A, EOS, PAD, PAD, PAD]])
    target = np.array([[B, B, U, U, B, EOS], [B, B, B, B, EOS, PAD], [U, B, EOS, PAD, PAD, PAD]])
    # the first pair at 0.4: two of five tokens are within a word, so three, and three fifths of
    # five target tokens, three, are within a word: five. The second is left alone. The third at
    # 0.1 is one word.
    draws = Chosen([0.0, 0.9, 0.0], [0.4, 0.5, 0.1])
    cut = Prefixes(0.5, CODEC).cut(source, np.array([6, 4, 3]), target, np.array([6, 5, 3]), draws)
    assert [part.tolist() for part in cut] == [
        [[A, X, B, PAD, PAD, PAD], [A, A, A, EOS, PAD, PAD], [X, A, PAD, PAD, PAD, PAD]],
        [3, 4, 2],
        [[B, B, U, U, B, PAD], [B, B, B, B, EOS, PAD], [U, B, PAD, PAD, PAD, PAD]],
        [5, 5, 2],
    ]


def test_a_sentence_without_words_is_left_alone() -> None:
    source, target = np.array([[EOS, PAD], [X, EOS]]), np.array([[A, EOS], [A, EOS]])
    lengths = np.array([1, 2]), np.array([2, 2])
    draws = Chosen([0.0, 0.0], [0.5, 0.5])
    cut = Prefixes(1.0, CODEC).cut(source, lengths[0], target, lengths[1], draws)
    assert [part.tolist() for part in cut] == [
        source.tolist(), [1, 2], target.tolist(), [2, 2]
    ]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("prefixes")
    random = np.random.default_rng(1)
    for side in ("source", "target"):
        lines = [" ".join(random.choice(list("abcdef"), random.integers(2, 12))) for _ in range(80)]
        (place / side).write_text("\n".join(lines) + "\n")
    pair = TextPair(place / "source", place / "target")
    prepare(place / "data", [pair], None, pipeline="words", min_count=1)
    return place / "data"


def test_batches(folder: Path) -> None:
    config = DataConfig(batch_tokens=64, max_length=64, length_step=4)
    corpus = Corpus(folder)
    codec = Codec.load(folder)

    def batches(share: float, start: int = 0) -> Batches:
        made = Batches(corpus, config, epochs=1, prefixes=Prefixes(share, codec))
        made.resume({"epoch": 0, "batch": start})
        return made

    whole, same, cut = (list(batches(share)) for share in (0.0, 0.0, 0.5))
    for one, other in zip(whole, same, strict=True):
        assert torch.equal(one.source, other.source)
    shorter = 0
    for one, other in zip(whole, cut, strict=True):
        assert one.source.shape == other.source.shape
        for row, (length, new) in enumerate(
            zip(one.source_lengths.tolist(), other.source_lengths.tolist(), strict=True)
        ):
            shorter += new < length
            assert torch.equal(one.source[row, :new], other.source[row, :new])
            assert not other.source[row, new:].any()
            words, said = int(one.target_lengths[row]) - 1, int(other.target_lengths[row])
            if new < length:
                assert 0 <= said - new / (length - 1) * words < 1
            else:
                assert said == words + 1
    assert 20 < shorter < 60  # of 80
    resumed = list(batches(0.5, 2))
    assert torch.equal(resumed[0].source, cut[2].source)
