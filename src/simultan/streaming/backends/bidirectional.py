"""Our own models whose encoder looks both ways: each new word changes what all others mean.

So the source is encoded again when there is more of it, and the target decoded again for each
token. What was written before is forced, never changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from simultan.data.batching import Batch
from simultan.data.vocabulary import EOS, PAD
from simultan.model import Transformer, TranslationModel
from simultan.streaming.agents.protocol import Scores
from simultan.streaming.backends.protocol import Backend

__all__ = ["Bidirectional"]

VIEWS = 4  # encoded sources of a row that are kept: an agent seldom compares more


class Bidirectional(Backend):
    """A Transformer, and what its rows have read and written."""

    def __init__(self, model: TranslationModel, rows: int) -> None:
        assert isinstance(model, Transformer)
        self.model = model
        self.device = model.output.weight.device
        self.source: list[list[int]] = [[] for _ in range(rows)]
        self.target: list[list[int]] = [[] for _ in range(rows)]
        self.encoded: list[dict[int, Tensor]] = [{} for _ in range(rows)]  # by tokens seen, [S, D]

    @property
    def tries(self) -> bool:
        return True

    def read(self, rows: Sequence[int], tokens: list[list[int]], ended: Sequence[bool]) -> None:
        for row, new in zip(rows, tokens, strict=True):
            self.source[row] += [token for token in new if token != EOS]

    def score(self, rows: Sequence[int], visible: Sequence[int], attention: bool) -> Scores:
        self._encode(list(zip(rows, visible, strict=True)))
        found = [
            self.encoded[row][self._seen(row, n)] for row, n in zip(rows, visible, strict=True)
        ]
        before = list(self.model.target_prefix)
        # what a target ends with is not read, only what comes before
        targets = [[*before, *self.target[row], EOS] for row in rows]
        lengths, last = self._lengths(found), self._lengths(targets) - len(before) - 1
        batch = Batch(self._pad(targets), lengths, self._pad(targets), last)
        memory = pad_sequence(found, batch_first=True)
        hidden = self.model.decode(memory, batch).hidden
        hidden = hidden[torch.arange(len(rows), device=self.device), last]
        logits = self.model.project(hidden)
        logits[:, :EOS] = -torch.inf  # padding and begin are never written
        return Scores(logits, hidden)

    def _seen(self, row: int, visible: int) -> int:
        return min(visible, len(self.source[row]))

    def _encode(self, views: list[tuple[int, int]]) -> None:
        """Encode the sources that were not there before, with an end behind each of them."""
        new = [(row, n) for row, visible in views
               if (n := self._seen(row, visible)) not in self.encoded[row]]  # fmt: skip
        if not new:
            return
        before = self.model.source_prefix
        sources = [[*before, *self.source[row][:n], EOS] for row, n in new]
        lengths = self._lengths(sources)
        states = self.model.encode(self._pad(sources), lengths)
        for (row, n), state, length in zip(new, states, lengths.tolist(), strict=True):
            kept = self.encoded[row]
            while len(kept) >= VIEWS:
                del kept[next(iter(kept))]
            kept[n] = state[:length]

    def _pad(self, rows: list[list[int]]) -> Tensor:
        longest = max(map(len, rows))
        padded = [row + [PAD] * (longest - len(row)) for row in rows]
        return torch.tensor(padded, device=self.device)

    def _lengths(self, rows: Sequence[list[int] | Tensor]) -> Tensor:
        return torch.tensor([len(row) for row in rows], device=self.device)

    def commit(self, rows: Sequence[int], tokens: Sequence[int]) -> None:
        for row, token in zip(rows, tokens, strict=True):
            self.target[row].append(token)

    def keep(self, rows: Sequence[int]) -> list[int]:
        return [len(self.target[row]) for row in rows]

    def restore(self, rows: Sequence[int], kept: list[int]) -> None:
        for row, length in zip(rows, kept, strict=True):
            del self.target[row][length:]

    def mark(self, row: int) -> int:
        return len(self.source[row])

    def rewind(self, row: int, mark: int) -> None:
        del self.source[row][mark:]
        self.encoded[row] = {n: state for n, state in self.encoded[row].items() if n <= mark}

    def reset(self, row: int) -> None:
        self.source[row], self.target[row], self.encoded[row] = [], [], {}
