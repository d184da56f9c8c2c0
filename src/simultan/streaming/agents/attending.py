"""align-att:N and ed-att:A,N: write while the next token attends to words before the last N.

AlignAtt asks where most of its attention lies, EDAtt whether the last N have less than A of it.
Papi et al. 2023.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from simultan.streaming.agents.protocol import READ, WRITE, Agent, Seen


class Attending(Agent):
    words: int
    layer: int  # whose heads are looked at; 0: those of all layers
    wants_attention = True

    def decide(self, seen: Seen) -> list[int]:
        missing = [max(0, self.words + 1 - read) for read in seen.read]
        if all(missing):
            return missing
        attention = seen.attention(self.layer).tolist()
        return [
            words or (READ if self.waits(weights[:read]) else WRITE)
            for words, weights, read in zip(missing, attention, seen.read, strict=True)
        ]

    @abstractmethod
    def waits(self, attention: list[float]) -> bool:
        """Whether to read on, given the attention to each word that was read."""


@dataclass(frozen=True)
class AlignAtt(Attending):
    words: int
    layer: int = 0

    def waits(self, attention: list[float]) -> bool:
        return attention.index(max(attention)) >= len(attention) - self.words


@dataclass(frozen=True)
class EDAtt(Attending):
    alpha: float
    words: int
    layer: int = 0

    def waits(self, attention: list[float]) -> bool:
        return sum(attention[-self.words :]) >= self.alpha
