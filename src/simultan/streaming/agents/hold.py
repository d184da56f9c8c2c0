"""hold:N: write the translation of what was read, but for its last N words (Liu et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from simultan.streaming.agents.protocol import READ, WRITE, Agent, Seen

__all__ = ["Hold"]


@dataclass(frozen=True)
class Hold(Agent):
    words: int

    @property
    def goes_on(self) -> bool:
        return True

    def decide(self, seen: Seen) -> list[int]:
        # a translation is made once for each word that is read
        new = [
            row
            for row, (read, memory) in enumerate(zip(seen.read, seen.memory, strict=True))
            if memory.get("read") != read and not seen.ended[row]
        ]
        for row, rest in zip(new, seen.go_on(new) if new else [], strict=True):
            until = seen.written[row] + rest - self.words
            seen.memory[row].update(read=seen.read[row], until=until)
        return [
            WRITE if written < memory.get("until", 0) else READ
            for written, memory in zip(seen.written, seen.memory, strict=True)
        ]
