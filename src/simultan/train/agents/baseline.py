"""What an action is compared with: other episodes of its sentence, and what a network adds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from simultan.train.agents.reward import Episode


class Baseline(nn.Module):
    """What is to be expected from a state, beyond what other episodes of the sentence brought."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width + 1, 64)
        self.outer = nn.Linear(64, 1)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, states: Tensor, others: Tensor) -> Tensor:
        """[B, T, W], [B, T] -> [B, T]"""
        expected = others[..., None]
        inner = torch.relu(self.inner(torch.cat([states, expected], -1)))
        return (self.outer(inner) + expected).squeeze(-1)


def expect(
    episodes: Sequence[Episode], prospects: Sequence[Sequence[float]], samples: int
) -> list[list[float]]:
    """For each action the mean prospect of the sentence's other episodes, at the same token."""
    counts = [_written(episode) for episode in episodes]
    first = [_first(*pair) for pair in zip(counts, prospects, strict=True)]
    found = []
    for number, own in enumerate(counts):
        group = number - number % samples
        others = [first[n] for n in range(group, group + samples) if n != number]
        found.append([sum(o[j] if j < len(o) else 0.0 for o in others) / len(others) for j in own])
    return found


def _written(episode: Episode) -> list[int]:
    """Tokens before each action."""
    found, count = [], 0
    for token in episode.written:
        found.append(count)
        count += token is not None
    return found


def _first(counts: Sequence[int], prospects: Sequence[float]) -> list[float]:
    """The prospect before the first action of each token."""
    found: list[float] = []
    for count, prospect in zip(counts, prospects, strict=True):
        if count == len(found):
            found.append(prospect)
    return found
