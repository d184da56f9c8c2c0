"""agreement:N: write what the translations of the last N prefixes have in common.

With greedy search that is: write a token while it is the best one with each of the last N
prefixes, the longest of which is all that was read (local agreement; Liu et al. 2020, Polak et
al. 2022). All translations begin with what is written.
"""

from __future__ import annotations

from dataclasses import dataclass

from simultan.streaming.agents.protocol import READ, WRITE, Agent, Seen

__all__ = ["Agreement"]


@dataclass(frozen=True)
class Agreement(Agent):
    prefixes: int

    @property
    def lookahead(self) -> tuple[int, ...]:
        return tuple(range(1 - self.prefixes, 0))

    def decide(self, seen: Seen) -> list[int]:
        missing = [max(0, self.prefixes - read) for read in seen.read]
        if all(missing):
            return missing
        views = zip(seen.scores.best, *(view.best for view in seen.ahead), strict=True)
        return [
            words or (WRITE if len(set(tokens)) == 1 else READ)
            for words, tokens in zip(missing, views, strict=True)
        ]
