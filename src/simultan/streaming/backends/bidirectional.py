"""Our own models whose encoder looks both ways: each new word changes what all others mean.

So the source is encoded again when there is more of it, and the target decoded again for each
token. What was written before is forced, never changed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence, Sized

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from simultan.data.batching import Batch
from simultan.data.vocabulary import EOS, PAD
from simultan.model import Transformer, TranslationModel
from simultan.streaming.agents.protocol import Scores
from simultan.streaming.backends.rereading import Engine, Frame, View, present


class Bidirectional(Engine):
    """A Transformer; each row remembers its encoded sources."""

    def __init__(self, model: TranslationModel) -> None:
        assert isinstance(model, Transformer)
        self.model, self.device = model, model.output.weight.device
        self.frame = Frame(
            model.source_prefix, (EOS,), model.target_prefix, longest=sys.maxsize, offset=0
        )

    def score(self, views: list[View], attention: bool) -> Scores:
        found = self._encode(views)
        # what a target ends with is not read, only what comes before
        targets = [(*view.target, EOS) for view in views]
        last = self._lengths(targets) - len(self.frame.begin) - 1
        batch = Batch(self._pad(targets), self._lengths(found), self._pad(targets), last)
        hidden = self.model.decode(pad_sequence(found, batch_first=True), batch).hidden
        hidden = hidden[torch.arange(len(views), device=self.device), last]
        return Scores(present(None, self.model.project(hidden), views), hidden)

    def _encode(self, views: list[View]) -> list[Tensor]:
        """[S, D] of each source; kept while an agent may compare it with others."""
        new = [view for view in views if view.source not in view.memory]
        if new:
            sources = [view.source for view in new]
            states = self.model.encode(self._pad(sources), self._lengths(sources))
            for view, state in zip(new, states, strict=True):
                view.remember(view.source, state[: len(view.source)])
        return [view.memory[view.source] for view in views]

    def _pad(self, rows: Sequence[tuple[int, ...]]) -> Tensor:
        tokens = [torch.tensor(row, device=self.device) for row in rows]
        return pad_sequence(tokens, batch_first=True, padding_value=PAD)

    def _lengths(self, rows: Sequence[Sized]) -> Tensor:
        return torch.tensor([len(row) for row in rows], device=self.device)
