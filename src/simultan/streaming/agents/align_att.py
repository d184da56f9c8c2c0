"""align-att:N: write while the next token attends to a word before the last N (AlignAtt).

Papi et al. 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from simultan.streaming.agents.protocol import READ, WRITE, Agent, Seen

__all__ = ["AlignAtt"]


@dataclass(frozen=True)
class AlignAtt(Agent):
    words: int
    layer: int = 0  # whose heads are looked at; 0: those of all layers

    @property
    def wants_attention(self) -> bool:
        return True

    def decide(self, seen: Seen) -> list[int]:
        missing = [max(0, self.words + 1 - read) for read in seen.read]
        if all(missing):
            return missing
        aligned = seen.attention(self.layer).argmax(-1).tolist()
        return [
            words or (READ if word >= read - self.words else WRITE)
            for words, word, read in zip(missing, aligned, seen.read, strict=True)
        ]
