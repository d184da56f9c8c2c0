"""wait-k:K: target word i sees the first i + K - 1 source words (Ma et al. 2019, at test time)."""

from __future__ import annotations

from dataclasses import dataclass

from simultan.streaming.agents.protocol import Agent, Seen


@dataclass(frozen=True)
class WaitK(Agent):
    k: int

    def decide(self, seen: Seen) -> list[int]:
        pairs = zip(seen.read, seen.written, strict=True)
        return [max(0, self.k + written - read) for read, written in pairs]
