"""ed-att:A,N: write while the next token's attention to the last N words is below A (EDAtt).

Papi et al. 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from simultan.streaming.agents.protocol import READ, WRITE, Agent, Seen

__all__ = ["EDAtt"]


@dataclass(frozen=True)
class EDAtt(Agent):
    alpha: float
    words: int
    layer: int = 0  # whose heads are looked at; 0: those of all layers

    @property
    def wants_attention(self) -> bool:
        return True

    def decide(self, seen: Seen) -> list[int]:
        missing = [max(0, self.words + 1 - read) for read in seen.read]
        if all(missing):
            return missing
        attention = seen.attention(self.layer).tolist()
        return [
            words or (WRITE if sum(weights[read - self.words : read]) < self.alpha else READ)
            for words, weights, read in zip(missing, attention, seen.read, strict=True)
        ]
