"""hold:N: write the translation of what was read, but for its last N words (Liu et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from simultan.streaming.agents.protocol import READ, WRITE, Agent, Seen


@dataclass(frozen=True)
class Hold(Agent):
    words: int
    goes_on = closes = True

    def decide(self, seen: Seen) -> list[int]:
        assert seen.go_on is not None
        new = seen.newly_read()
        for row, rest in zip(new, seen.go_on(new) if new else [], strict=True):
            seen.memory[row]["until"] = seen.written[row] + rest.words - self.words
        return [
            WRITE if written < memory.get("until", 0) else READ
            for written, memory in zip(seen.written, seen.memory, strict=True)
        ]
