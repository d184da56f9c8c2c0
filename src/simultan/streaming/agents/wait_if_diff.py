"""wait-if-diff:S,N: read S words, then N more while they change the best token.

Cho and Esipova 2016.
"""

from __future__ import annotations

from dataclasses import dataclass

from simultan.streaming.agents.protocol import WRITE, Agent, Seen

__all__ = ["WaitIfDiff"]


@dataclass(frozen=True)
class WaitIfDiff(Agent):
    start: int
    step: int

    @property
    def lookahead(self) -> tuple[int, ...]:
        return (self.step,)

    def decide(self, seen: Seen) -> list[int]:
        missing = [max(0, self.start - read) for read in seen.read]
        if all(missing):
            return missing
        return [
            words or (WRITE if token == further else self.step)
            for words, token, further in zip(
                missing, seen.scores.best, seen.ahead[0].best, strict=True
            )
        ]
