"""Live beams: where the best token is not sure, what would follow decides which one is written.

Each of the likeliest tokens is tried: the model goes on for `AHEAD` tokens with what has been read
and no more, and the token whose continuation is likeliest wins,

    argmax_y  max_z  log p(y z | x_read, written) / |y z|

(speculative beam search, Zheng et al. 2019). Nothing is kept of it, and no word comes later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from simultan.data.vocabulary import EOS
from simultan.model import TranslationModel
from simultan.model.state import State

AHEAD = 2  # tokens
SURE = math.log(0.6)  # a token as likely as this is written without a search
MOST = 8  # rows that are searched at once: each is as many rows of the copy as it has beams


class Candidate(NamedTuple):
    """A row that may write, and how it decodes."""

    row: int
    token: int  # the most probable one
    beam: int
    threshold: float
    mass: float | None


class _Best(NamedTuple):
    """The tokens that are likeliest in a place, the best first."""

    log_probs: list[float]
    tokens: list[int]


@dataclass
class _Beams:
    """The likeliest beginnings of one row, the best first."""

    candidate: Candidate
    over: bool  # the source has been read to its end: so may the translation
    scores: list[float] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    ended: list[tuple[float, int]] = field(default_factory=list)  # score a token, first token

    def grow(self, best: list[_Best], tokens: int) -> list[int]:
        """One token more, by what is likeliest after each beginning -> those that are continued."""
        beam = self.candidate.beam
        before = self.scores or [0.0]
        grown = sorted(
            (
                (before[i] + value, -i, token)
                for i, row in enumerate(best)
                for value, token in zip(row.log_probs, row.tokens, strict=True)
                if token != EOS or self.over
            ),
            reverse=True,
        )
        firsts = self.firsts
        for score, i, token in grown[:beam]:
            if token == EOS:
                self.ended.append((score / tokens, firsts[-i] if firsts else token))
        going = [one for one in grown if one[2] != EOS][:beam]
        self.scores = [score for score, _, _ in going]
        self.firsts = [firsts[-i] if firsts else token for _, i, token in going]
        self.lasts = [token for _, _, token in going]
        return [-i for _, i, _ in going]

    @property
    def decided(self) -> bool:
        """Whether all begin alike, or nothing can be added."""
        return not self.lasts or len({*self.firsts, *(first for _, first in self.ended)}) == 1

    def best(self, tokens: int) -> int:
        """The first token of the likeliest beginning; those that go on have so many tokens."""
        going = [
            (score / tokens, first) for score, first in zip(self.scores, self.firsts, strict=True)
        ]
        return max([*going, *self.ended], key=lambda one: one[0])[1]


class LookAhead:
    """Chooses between tokens; what it tries happens in a copy of the state."""

    def __init__(self, model: TranslationModel, state: State) -> None:
        self.model, self.state = model, state
        self.copy: State | None = None

    def choose(self, candidates: Sequence[Candidate], logits: Tensor) -> list[int]:
        """The tokens to write, where the last step of the state gave logits [R, V]."""
        tokens = [one.token for one in candidates]
        asked = [i for i, one in enumerate(candidates) if one.beam > 1 and one.token != EOS]
        if not asked:
            return tokens
        groups: dict[int, list[int]] = {}  # by beam
        for i, log_prob in zip(asked, _log_probs(logits, asked, tokens), strict=True):
            if log_prob < SURE:
                groups.setdefault(candidates[i].beam, []).append(i)
        for places in groups.values():
            for start in range(0, len(places), MOST):
                part = places[start : start + MOST]
                found = self._search([candidates[i] for i in part], logits[part])
                for i, token in zip(part, found, strict=True):
                    tokens[i] = token
        return tokens

    def _search(self, candidates: list[Candidate], logits: Tensor) -> list[int]:
        """What to write in rows of as many beams; logits [R, V] of the next token."""
        beam = candidates[0].beam
        rows = [_Beams(one, self.state.has_ended(one.row)) for one in candidates]
        for row, likeliest in zip(rows, _likeliest(logits, beam), strict=True):
            row.grow([likeliest], 1)
        copy = self._copy(beam, candidates)
        for tokens in range(2, AHEAD + 2):
            active = [(i, row) for i, row in enumerate(rows) if not row.decided]
            if not active:
                break
            places = [i * beam + n for i, row in active for n in range(len(row.lasts))]
            owners = [row.candidate for _, row in active for _ in row.lasts]
            step = self.model.step(
                [token for _, row in active for token in row.lasts],
                copy,
                places,
                [one.threshold for one in owners],
                mass=[one.mass for one in owners],
            )
            assert step.rows == places  # none waits: for the copy the source has ended
            parents, start = list(range(copy.rows)), 0
            best = _likeliest(step.logits, beam)
            for i, row in active:
                count = len(row.lasts)
                for n, parent in enumerate(row.grow(best[start : start + count], tokens)):
                    parents[i * beam + n] = i * beam + parent
                start += count
            if tokens <= AHEAD:
                copy.commit(places)
                copy.reorder(parents)
        return [row.best(AHEAD + 1) for row in rows]

    def _copy(self, beam: int, candidates: list[Candidate]) -> State:
        """Each row so many times, as if it had read all of its source that it needs so far."""
        count = beam * len(candidates)
        if self.copy is None or self.copy.rows < count:
            self.copy = self.model.initial_state(count)
        for row in range(self.copy.rows):
            self.copy.reset(row)
        for i, one in enumerate(candidates):
            self.copy.take_over(range(i * beam, (i + 1) * beam), self.state, one.row)
        return self.copy


def _log_total(logits: Tensor) -> Tensor:
    """What logits [R, V] are divided by; summed in double precision, as many as they are."""
    top = logits.amax(-1, keepdim=True)
    return (logits - top).exp().sum(-1, keepdim=True, dtype=torch.double).log() + top


def _log_probs(logits: Tensor, rows: Sequence[int], tokens: Sequence[int]) -> list[float]:
    """Of one token in each of these rows."""
    found = logits[rows, [tokens[row] for row in rows]].double() - _log_total(logits)[rows, 0]
    log_probs: list[float] = found.tolist()
    return log_probs


def _likeliest(logits: Tensor, beam: int) -> list[_Best]:
    """Enough of what may be written for so many beams, end-of-sequence beside."""
    top = logits[:, EOS:].topk(min(2 * beam + 1, logits.shape[1] - EOS))
    log_probs: list[list[float]] = (top.values.double() - _log_total(logits)).tolist()
    tokens: list[list[int]] = (top.indices + EOS).tolist()
    return [_Best(*row) for row in zip(log_probs, tokens, strict=True)]
