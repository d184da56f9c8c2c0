"""Our own models: what is read and written stays encoded, and a token costs one decoder pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simultan.data.vocabulary import BOS, EOS
from simultan.model import TranslationModel
from simultan.model.state import Mark, Written
from simultan.streaming.agents.protocol import Scores
from simultan.streaming.decoding import THRESHOLD


class Incremental:
    """A TranslationModel and the state of its rows."""

    rewinds = True

    def __init__(self, model: TranslationModel, rows: int) -> None:
        self.model = model
        self.device = next(model.parameters()).device
        with torch.inference_mode():
            self.state = model.initial_state(rows)
        self.last = [BOS] * rows  # the last token written
        self.tries = not model.window  # a window forgets what it has passed
        self.attention_layers = len(model.cross_attentions()) if self.tries else 0

    def read(self, rows: Sequence[int], tokens: list[list[int]], ended: Sequence[bool]) -> None:
        counts = [len(taken) for taken in tokens]
        longest = max(counts)
        padded = [taken + [EOS] * (longest - len(taken)) for taken in tokens]
        new = torch.tensor(padded, device=self.device)
        self.model.extend(new, self.state, rows, counts, ended)

    def score(self, rows: Sequence[int], visible: Sequence[int], attention: bool) -> Scores:
        for row, tokens in zip(rows, visible, strict=True):
            dropped = max(cache.base[row] for cache in self.state.source_caches)
            self.state.limit(row, max(tokens, dropped + 1))
        last = [self.last[row] for row in rows]
        step = self.model.step(last, self.state, rows, [THRESHOLD] * len(last), attention=attention)
        step.logits[:, :EOS] = -torch.inf  # padding and begin are never written
        return Scores(step.logits, step.hidden, step.attention, step.context, self._embed)

    def _embed(self, tokens: list[int]) -> Tensor:
        return self.model.output.weight.detach()[tokens]

    def commit(self, rows: Sequence[int], tokens: Sequence[int]) -> None:
        for row, token in zip(rows, tokens, strict=True):
            self.last[row] = token
        self.state.commit(rows)

    def mark(self, row: int) -> Mark:
        if self.model.window:  # its caches may have dropped what it would see again
            raise ValueError("an agent that guesses needs a model without a window")
        return self.state.mark(row)

    @torch.inference_mode()
    def rewind(self, row: int, mark: Mark) -> None:
        self.state.rewind(row, mark)

    def reset(self, row: int) -> None:
        self.state.reset(row)
        self.last[row] = BOS

    def keep(self, rows: Sequence[int]) -> tuple[list[int], Written]:
        return [self.last[row] for row in rows], self.state.keep(rows)

    def restore(self, rows: Sequence[int], kept: tuple[list[int], Written]) -> None:
        for row, token in zip(rows, kept[0], strict=True):
            self.last[row] = token
        self.state.restore(rows, kept[1])
