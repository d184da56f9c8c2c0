"""wait-if-diff:S,N and wait-if-worse:S,N: read S words, then N more while they speak against it.

They change the best token, or they make it less likely. Cho and Esipova 2016.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from simultan.streaming.agents.protocol import WRITE, Agent, Seen


@dataclass(frozen=True)
class WaitIf(Agent):
    start: int
    step: int

    @property
    def lookahead(self) -> tuple[int, ...]:
        return (self.step,)

    def decide(self, seen: Seen) -> list[int]:
        missing = [max(0, self.start - read) for read in seen.read]
        if all(missing):
            return missing
        pairs = zip(missing, self.waits(seen), strict=True)
        return [words or (self.step if wait else WRITE) for words, wait in pairs]

    @abstractmethod
    def waits(self, seen: Seen) -> list[bool]:
        """Whether each row is to read on."""


class WaitIfDiff(WaitIf):
    def waits(self, seen: Seen) -> list[bool]:
        pairs = zip(seen.scores.best, seen.ahead[0].best, strict=True)
        return [token != further for token, further in pairs]


class WaitIfWorse(WaitIf):
    def waits(self, seen: Seen) -> list[bool]:
        now, further = seen.scores.log_probs, seen.ahead[0].log_probs
        best = now.argmax(-1, keepdim=True)
        worse: list[bool] = (now.gather(1, best) > further.gather(1, best))[:, 0].tolist()
        return worse
