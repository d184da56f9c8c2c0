"""Reads the whole source first: what an offline model does when no agent is chosen."""

from __future__ import annotations

from simultan.streaming.agents.protocol import Agent, Seen


class Whole(Agent):
    def decide(self, seen: Seen) -> list[int]:
        return [1_000_000] * len(seen.read)
