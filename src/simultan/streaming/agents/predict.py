"""The same with a third action: to guess the next source word, and to translate on with it.

Alinejad et al. 2018. Guesses come from a small language model of the source,

    p(x_j | x_<j) = softmax(E W GRU(E x_<j))
and the probability of the best guess is one more number that the policy sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from simultan.data.vocabulary import BOS, EOS, PAD, UNK
from simultan.streaming.agents.protocol import READ, WRITE, Answer, Guess, Seen
from simultan.streaming.agents.reinforced import (
    NUMBERS,
    Policy,
    Reinforced,
    make_policy,
    observe,
    part_of,
)

GUESS = 2  # the number of the action
LONGEST = 8  # tokens of a guessed word


class SourceModel(nn.Module):
    """A language model of source tokens."""

    ends: Tensor

    def __init__(self, ends: Tensor, width: int) -> None:
        """ends [V]: whether a word is complete with this token."""
        super().__init__()
        self.tokens = nn.Embedding(len(ends), width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.output = nn.Linear(width, width)
        self.register_buffer("ends", ends)
        nn.init.normal_(self.tokens.weight, std=width**-0.5)

    def forward(self, tokens: Tensor, states: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """[B, N] and the states [B, W] before -> what logits are made from, and states [B, N, W]"""
        before = None if states is None else states[None]
        embedded = self.tokens(tokens) * self.tokens.embedding_dim**0.5
        after, _ = self.memory(embedded, before)
        return self.output(after), after

    def project(self, hidden: Tensor) -> Tensor:
        """[..., W] -> [..., V]"""
        return hidden @ self.tokens.weight.T

    def read(self, tokens: list[list[int]], states: Tensor) -> tuple[Tensor, Tensor]:
        """More tokens of each row, at least one -> the last outputs and states [R, W]."""
        rows = [torch.tensor(row) for row in tokens]
        padded = pad_sequence(rows, batch_first=True, padding_value=PAD)
        hidden, after = self(padded.to(states.device), states)
        index = torch.arange(len(tokens), device=states.device)
        last = torch.tensor([len(row) - 1 for row in tokens], device=states.device)
        return hidden[index, last], after[index, last]

    def guess(self, hidden: Tensor, states: Tensor) -> tuple[list[tuple[int, ...]], list[float]]:
        """The next word of each row, token by token the best one, and its log-probability."""
        words: list[list[int]] = [[] for _ in hidden]
        total = [0.0] * len(words)
        active = list(range(len(words)))
        while active:
            scores = self.project(hidden).log_softmax(-1)
            scores[:, [PAD, BOS, UNK]] = -torch.inf
            best = scores.max(-1)
            tokens: list[int] = best.indices.tolist()
            for row, token, score in zip(active, tokens, best.values.tolist(), strict=True):
                words[row].append(token)
                total[row] += score
            ended = self.ends[best.indices].tolist()
            open_ = [
                i
                for i, (row, end) in enumerate(zip(active, ended, strict=True))
                if not end and tokens[i] != EOS and len(words[row]) < LONGEST
            ]
            active = [active[i] for i in open_]
            if active:
                hidden, states = self.read([[tokens[i]] for i in open_], states[open_])
        return [tuple(word) for word in words], total


class Predict(Reinforced):
    """WRITE, READ or GUESS."""

    kinds = 3
    guesses = True

    def __init__(self, policy: Policy, source: SourceModel) -> None:
        super().__init__(policy)
        self.source = source

    @classmethod
    def make(cls, weights: Mapping[str, Tensor]) -> Self:
        part = part_of(weights, "source.")
        source = SourceModel(part["ends"], part["tokens.weight"].shape[1])
        source.load_state_dict(part)
        return cls(make_policy(weights, cls.kinds), source.eval())

    def decide(self, seen: Seen) -> Sequence[Answer]:
        words, sure = self._next_words(seen)
        observed = observe(seen)
        numbers, vectors = observed[:, :NUMBERS], observed[:, NUMBERS:]
        observed = torch.cat([numbers, observed.new_tensor(sure)[:, None], vectors], 1)
        answers: list[Answer] = [WRITE, READ]
        return [
            Guess(word) if action == GUESS else answers[action]
            for action, word in zip(self.choose(seen, observed), words, strict=True)
        ]

    def score(self, seen: Seen, observed: Tensor) -> Tensor:
        """Where a guess is in view there is no other."""
        scores = super().score(seen, observed)
        taken = torch.tensor([n > 0 for n in seen.guessed], device=scores.device)
        scores[taken, GUESS] = -torch.inf
        return scores

    def _next_words(self, seen: Seen) -> tuple[list[tuple[int, ...]], list[float]]:
        """The guess for each row and how sure it is; computed once for each word that was read."""
        device = seen.scores.logits.device
        if self.source.output.weight.device != device:
            self.source.to(device)
        new = []
        none = torch.zeros(self.source.memory.hidden_size, device=device)
        for memory, tokens in zip(seen.memory, seen.source(), strict=True):
            known = memory.setdefault("source", {"count": 0, "state": none, "tokens": [BOS]})
            known["tokens"] += tokens[known["count"] :]
            known["count"] = len(tokens)
            if known["tokens"] and tokens[-1:] != [EOS]:
                new.append(known)
        if new:
            states = torch.stack([known["state"] for known in new])
            hidden, after = self.source.read([known["tokens"] for known in new], states)
            for known, state, word, sure in zip(
                new, after, *self.source.guess(hidden, after), strict=True
            ):
                known |= {"state": state, "tokens": [], "word": word, "sure": sure}
        found = [memory["source"] for memory in seen.memory]
        return [f.get("word", (EOS,)) for f in found], [f.get("sure", 0.0) for f in found]
