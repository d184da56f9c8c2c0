"""Read/write rules over an offline model: they decide from outside how much is read.

wait-k:K          target word i sees the first i + K - 1 source words
static:S,N        read S words; then write N and read N in turn (Dalvi et al. 2018)
wait-if-worse:S,N read S words; read N more while the best token is less likely with them
wait-if-diff:S,N  read S words; read N more while the best token is another with them
                  (both Cho and Esipova 2016)
All of them count words, and the end of the source as one word more.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import torch
from torch import Tensor

from simultan.data.codec import Codec
from simultan.data.vocabulary import EOS
from simultan.model import TranslationModel
from simultan.model.state import Step
from simultan.streaming.session import Event, Session

__all__ = ["Rule", "RuleSession"]

ARGUMENTS = {"wait-k": 1, "static": 2, "wait-if-worse": 2, "wait-if-diff": 2}


@dataclass(frozen=True)
class Rule:
    """A rule: read `start` words first, `step` words more whenever it wants more."""

    name: str
    start: int
    step: int = 1

    @classmethod
    def parse(cls, text: str) -> Rule:
        """As on the command line: "wait-if-diff:2,1"."""
        name, _, rest = text.partition(":")
        try:
            numbers = [int(number) for number in rest.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) != ARGUMENTS.get(name, -1) or min(numbers) < 1:
            raise ValueError(
                f"rule {text!r}: write wait-k:K, static:S,N, wait-if-worse:S,N or"
                " wait-if-diff:S,N, with numbers of at least 1"
            )
        return cls(name, *numbers)

    @property
    def compares(self) -> bool:
        return self.name.startswith("wait-if")

    def context(self, written: int) -> int:
        """Source words read before the next target word, of a rule that does not compare."""
        return self.start + self.step * (written // self.step)

    def waits(self, now: Tensor, further: Tensor) -> list[bool]:
        """Whether to read on, from logits [R, V] with what is read and with `step` words more."""
        best = now.argmax(-1, keepdim=True)
        if self.name == "wait-if-diff":
            return (further.argmax(-1, keepdim=True) != best)[:, 0].tolist()
        confidence = (torch.log_softmax(logits, -1).gather(1, best) for logits in (now, further))
        return torch.gt(*confidence)[:, 0].tolist()


class RuleSession(Session):
    """A session of an offline model that reads and writes as a rule says.

    `delay` counts what was read to decide: a rule that compares has seen `step` words more than
    the model has.
    """

    def __init__(
        self,
        model: TranslationModel,
        codec: Codec,
        rule: Rule,
        *,
        rows: int = 1,
        segment: bool = False,
        longest: int | None = None,
    ) -> None:
        if model.policy.name != "offline":
            raise ValueError(
                f"rule {rule.name}: it needs an offline model, not {model.policy.name}"
            )
        self.rule = rule
        self.contexts = [rule.start] * rows  # words of the segment the model sees, at least
        self.seen = [0] * rows  # words of the segment read to decide
        super().__init__(model, codec, rows=rows, segment=segment, longest=longest)

    def reset(self, row: int = 0) -> None:
        super().reset(row)
        self.contexts[row], self.seen[row] = self.rule.start, 0

    def tokens_needed(self, row: int, heads: list[list[int]]) -> int:
        return self._last_token(row, self.seen[row]) + 1

    def _delay(self, row: int, heads: list[list[int]]) -> int:
        state = self.rows[row]
        return min(state.before + self.seen[row], state.read)

    def _end_is_early(
        self, row: int, heads: list[list[int]], events: list[tuple[int, Event]]
    ) -> bool:
        word = self._word(row, heads[0][0]) - self.rows[row].before
        early = super()._end_is_early(row, heads, events)
        if early:
            self.contexts[row] = max(self.contexts[row], word + 1)
        return early

    def _last_token(self, row: int, words: int) -> int:
        """Of so many words of the segment; beyond the last of them, its end."""
        state = self.rows[row]
        return state.first + bisect_right(state.word_of, state.before + words) - 1

    def _place(self, row: int, words: int) -> bool:
        """Let the model see this many words of the segment; False: they have not come yet."""
        state = self.rows[row]
        if not self.state.finished[row] and state.before + words > state.read:
            return False
        self.state.limit(row, self._last_token(row, words) + 1)
        return True

    def _step(self, rows: list[int]) -> Step:
        if self.rule.compares:
            return self._compare(rows)
        for row in rows:
            planned = self.rule.context(self.rows[row].written)
            self.seen[row] = max(self.contexts[row], planned)
        return super()._step([row for row in rows if self._place(row, self.seen[row])])

    def _compare(self, rows: list[int]) -> Step:
        parts: list[Step] = []
        step = self.rule.step
        while rows := [row for row in rows if self._place(row, self.contexts[row] + step)]:
            further = super()._step(rows)
            for row in rows:
                self._place(row, self.contexts[row])
            now = super()._step(rows)  # last: what is committed is what the model saw here
            for logits in (now.logits, further.logits):
                logits[:, :EOS] = -torch.inf
            waits = self.rule.waits(now.logits, further.logits)
            decided = [i for i, wait in enumerate(waits) if not wait]
            for row, wait in zip(rows, waits, strict=True):
                if wait:
                    self.contexts[row] += step
                else:
                    self.seen[row] = self.contexts[row] + step
            written = [rows[i] for i in decided]
            parts.append(
                Step(written, now.logits[decided], now.hidden[decided], now.positions[decided])
            )
            rows = [row for row, wait in zip(rows, waits, strict=True) if wait]
        if not parts:
            return super()._step([])
        return Step(
            [row for part in parts for row in part.rows],
            torch.cat([part.logits for part in parts]),
            torch.cat([part.hidden for part in parts]),
            torch.cat([part.positions for part in parts]),
        )
