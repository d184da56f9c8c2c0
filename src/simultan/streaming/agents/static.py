"""static:S,N: read S words, then write N and read N in turn (Dalvi et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from simultan.streaming.agents.protocol import Agent, Seen


@dataclass(frozen=True)
class Static(Agent):
    start: int
    step: int

    def decide(self, seen: Seen) -> list[int]:
        pairs = zip(seen.read, seen.written, strict=True)
        return [max(0, self.start + n // self.step * self.step - read) for read, n in pairs]
