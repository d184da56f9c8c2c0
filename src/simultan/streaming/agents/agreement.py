"""agreement:N: write what the translations of the last N prefixes have in common.

The prefixes end with what was read, and their translations begin with what is written (local
agreement; Liu et al. 2020, Polak et al. 2022). A model that cannot try a translation is asked token
by token, which is the same with greedy search: write what is best with each of the last N prefixes.
"""

from __future__ import annotations

from dataclasses import dataclass

from simultan.streaming.agents.protocol import READ, WRITE, Agent, Seen
from simultan.streaming.stable import common_prefix


@dataclass(frozen=True)
class Agreement(Agent):
    prefixes: int
    closes = True

    @property
    def lookahead(self) -> tuple[int, ...]:
        return tuple(range(1 - self.prefixes, 0))

    def decide(self, seen: Seen) -> list[int]:
        missing = [max(0, self.prefixes - read) for read in seen.read]
        if seen.go_on is None:
            return missing if all(missing) else self._compare(seen, missing)
        new = seen.newly_read()
        for row, rest in zip(new, seen.go_on(new) if new else [], strict=True):
            memory, place = seen.memory[row], seen.tokens[row]
            past = [*memory.get("past", []), (place, rest.tokens)][-self.prefixes :]
            agreed = common_prefix([tokens[place - start :] for start, tokens in past])
            enough = len(past) == self.prefixes
            memory.update(past=past, until=place + len(agreed) if enough else place)
        return [
            WRITE if not ended and place < memory["until"] else READ
            for memory, ended, place in zip(seen.memory, seen.ended, seen.tokens, strict=True)
        ]

    def _compare(self, seen: Seen, missing: list[int]) -> list[int]:
        views = zip(seen.scores.best, *(view.best for view in seen.ahead), strict=True)
        return [
            words or (WRITE if len(set(tokens)) == 1 else READ)
            for words, tokens in zip(missing, views, strict=True)
        ]
