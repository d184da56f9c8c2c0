"""wait-if-worse:S,N: read S words, then N more while they make the best token less likely.

Cho and Esipova 2016.
"""

from __future__ import annotations

from dataclasses import dataclass

from simultan.streaming.agents.protocol import WRITE, Agent, Seen

__all__ = ["WaitIfWorse"]


@dataclass(frozen=True)
class WaitIfWorse(Agent):
    start: int
    step: int

    @property
    def lookahead(self) -> tuple[int, ...]:
        return (self.step,)

    def decide(self, seen: Seen) -> list[int]:
        missing = [max(0, self.start - read) for read in seen.read]
        if all(missing):
            return missing
        now, further = seen.scores.log_probs, seen.ahead[0].log_probs
        best = now.argmax(-1, keepdim=True)
        worse = (now.gather(1, best) > further.gather(1, best))[:, 0].tolist()
        return [
            words or (self.step if wait else WRITE)
            for words, wait in zip(missing, worse, strict=True)
        ]
