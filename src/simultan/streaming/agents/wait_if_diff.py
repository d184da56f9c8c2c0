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
        now, further = (view.log_probs.argmax(-1) for view in (seen.scores, *seen.ahead))
        differs = (now != further).tolist()
        return [
            words or (self.step if wait else WRITE)
            for words, wait in zip(missing, differs, strict=True)
        ]
