"""How the next token of a whole sentence is chosen: the best, one at random, or several beams.

sampling: p(y) ~ exp(logit(y) / temperature), of the top k and their equals alone if k > 0
beams: score(y) = log p(y | x) / |y|^penalty,  |y| with its end-of-sequence
All of it is done in place and on the device, so that a CUDA graph can record it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from simultan.data.vocabulary import BOS, EOS
from simultan.streaming.decoding import Sampling


@dataclass(frozen=True)
class Hypothesis:
    """A translation, without its end-of-sequence, and its score; 0 if it was not searched."""

    tokens: tuple[int, ...]
    score: float = 0.0


@dataclass(frozen=True)
class Search:
    """What to look for; by default the best token each time, which is the greedy search."""

    beam: int = 0  # beams of each sentence; 0: one row, and no scores
    penalty: float = 1.0
    best: int = 1  # hypotheses that are kept of each sentence, if it has beams
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        if self.beam < 0 or self.best < 1:
            raise ValueError(f"beam = {self.beam}, best = {self.best}: they must be at least 1")
        if self.best > max(1, self.beam):
            raise ValueError(f"best = {self.best}: it takes as many beams, here {self.beam}")
        if self.sampling is not None and self.beam:
            raise ValueError("a sentence is searched or drawn at random: choose one of them")

    @property
    def rows(self) -> int:
        """Rows that a sentence takes."""
        return max(1, self.beam)


class Found(NamedTuple):
    """What was written for N sentences."""

    tokens: Tensor  # [N, K, T] of their best hypotheses
    lengths: Tensor  # [N, K] without end-of-sequence
    scores: Tensor  # [N, K]
    complete: Tensor  # [N] False: it was cut at its limit


class Tokens(ABC):
    """What is written for some sentences; rows that are not alive stay as they are."""

    state: tuple[str, ...]  # what belongs to the sentences [B, ...]
    last: Tensor  # [B, beam] the input of the next step
    alive: Tensor  # [B] sentences that are not complete

    @abstractmethod
    def begin(self, places: Tensor, limits: Tensor, numbers: Tensor) -> None:
        """New sentences, of at most so many tokens; numbers tell what is drawn for them."""

    @abstractmethod
    def choose(self, logits: Tensor, positions: Tensor) -> Tensor | None:
        """Write a token of every sentence, and move its position on; logits [B beam, V] are spent.

        The row that each row continues [B beam]; None: itself.
        """

    @abstractmethod
    def found(self, places: Tensor, positions: Tensor) -> Found: ...

    def take_over(self, other: Tokens, places: Tensor) -> None:
        """The first sentences become those at these places of another one."""
        for name in self.state:
            getattr(self, name)[: len(places)] = getattr(other, name)[places]


class Pick(Tokens):
    """One row for each sentence: its best token, or one that is drawn."""

    state = "last", "out", "alive", "ended", "limits", "numbers"

    def __init__(
        self, sentences: int, target: int, prefix: Tensor, sampling: Sampling | None
    ) -> None:
        """`prefix`: tokens [P] that every sentence begins with."""
        device = prefix.device
        self.prefix, self.sampling = prefix, sampling
        self.last = torch.full((sentences, 1), BOS, device=device)
        self.out = torch.zeros(sentences, target, dtype=torch.long, device=device)
        self.alive = torch.zeros(sentences, dtype=torch.bool, device=device)
        self.ended = torch.zeros_like(self.alive)
        self.limits = torch.zeros(sentences, dtype=torch.long, device=device)
        self.numbers = torch.zeros_like(self.limits)

    def begin(self, places: Tensor, limits: Tensor, numbers: Tensor) -> None:
        self.last[places] = BOS
        self.limits[places] = limits
        self.numbers[places] = numbers
        self.ended[places] = False
        self.alive[places] = True

    def choose(self, logits: Tensor, positions: Tensor) -> None:
        logits[:, :EOS] = -torch.inf  # padding and begin are never written
        if self.sampling is not None:
            chosen = draw(logits, self.sampling, self.numbers, positions)
        elif logits.is_cuda:
            chosen = logits.argmax(-1)
        else:
            chosen = torch.from_numpy(logits.numpy().argmax(-1))  # ten times as fast
        chosen = forced(chosen[:, None], self.prefix, positions)
        self.last.copy_(chosen)
        self.out.scatter_(1, positions[:, None], chosen)
        ends = (chosen[:, 0] == EOS) & (positions >= len(self.prefix))
        self.ended |= self.alive & ends
        positions += self.alive
        self.alive &= ~ends & (positions - len(self.prefix) < self.limits)

    def found(self, places: Tensor, positions: Tensor) -> Found:
        ended = self.ended[places]
        lengths = positions[places] - len(self.prefix) - ended.long()
        tokens = self.out[places, len(self.prefix) :]
        nothing = torch.zeros(len(places), 1, dtype=torch.float64, device=tokens.device)
        return Found(tokens[:, None], lengths[:, None], nothing, ended)


class Beams(Tokens):
    """Several rows for each sentence, which are its likeliest unfinished beginnings.

    A sentence is complete when as many hypotheses have ended as it has beams.
    """

    state = "last", "out", "scores", "alive", "limits", "ended", "best", "best_out", "best_lengths"

    def __init__(self, sentences: int, target: int, prefix: Tensor, search: Search) -> None:
        device, beam = prefix.device, search.beam
        self.prefix, self.beam, self.penalty = prefix, beam, search.penalty
        self.last = torch.full((sentences, beam), BOS, device=device)
        self.out = torch.zeros(sentences, beam, target, dtype=torch.long, device=device)
        self.scores = torch.zeros(sentences, beam, dtype=torch.float64, device=device)
        self.alive = torch.zeros(sentences, dtype=torch.bool, device=device)
        self.limits = torch.zeros(sentences, dtype=torch.long, device=device)
        self.ended = torch.zeros_like(self.limits)  # hypotheses
        shape = sentences, search.best
        self.best = torch.full(shape, -torch.inf, dtype=torch.float64, device=device)
        self.best_out = torch.zeros(*shape, target, dtype=torch.long, device=device)
        self.best_lengths = torch.zeros(shape, dtype=torch.long, device=device)
        self.beams = torch.arange(beam, device=device)[None]
        self.first_rows = beam * torch.arange(sentences, device=device)[:, None]

    def begin(self, places: Tensor, limits: Tensor, numbers: Tensor) -> None:
        self.last[places] = BOS
        self.limits[places] = limits
        self.scores[places] = torch.where(self.beams == 0, 0.0, -torch.inf).double()
        self.ended[places] = 0
        self.best[places] = -torch.inf
        self.best_lengths[places] = 0
        self.alive[places] = True

    def choose(self, logits: Tensor, positions: Tensor) -> Tensor:
        sentences, beam = self.last.shape
        logits[:, :EOS] = -torch.inf
        if not logits.is_cuda:
            logits = logits.double()  # there it costs little
        top = logits.topk(min(2 * beam, logits.shape[1]))
        steps = (top.values - logits.logsumexp(-1, keepdim=True)).double()
        totals = (self.scores[:, :, None] + steps.view(sentences, beam, -1)).flatten(1)
        # one of the candidates of each beam is an end at most, so these have `beam` that go on
        grown = totals.topk(min(2 * beam, totals.shape[1]))
        values, parents = grown.values, grown.indices // steps.shape[1]
        tokens = top.indices.view(sentences, -1).gather(1, grown.indices)
        ends = tokens == EOS
        written = positions - len(self.prefix)
        counts = ends[:, :beam] & (self.alive & (written >= 0))[:, None]
        counts &= values[:, :beam].isfinite()
        lengths = written.clamp(min=0)[:, None]
        worth = values[:, :beam] / (lengths + 1).double() ** self.penalty
        worth = torch.where(counts, worth, -torch.inf)
        self._keep(worth, _select(self.out, parents[:, :beam]), lengths.expand(-1, beam))
        self.ended += counts.sum(1)

        going = torch.where(ends, -torch.inf, values).topk(beam)
        values, parents = going.values, parents.gather(1, going.indices)
        tokens = forced(tokens.gather(1, going.indices), self.prefix, positions)
        stays = ~self.alive[:, None] | (written < 0)[:, None]
        parents = torch.where(stays, self.beams, parents)
        self.scores.copy_(torch.where(stays, self.scores, values))
        self.last.copy_(tokens)
        self.out.copy_(_select(self.out, parents))
        self.out.scatter_(2, positions[:, None, None].expand(-1, beam, 1), tokens[:, :, None])
        positions += self.alive
        written = positions - len(self.prefix)
        late = self.alive & (written >= self.limits) & (self.best[:, 0] == -torch.inf)
        worth = self.scores[:, :1] / self.limits.clamp(min=1)[:, None].double() ** self.penalty
        self._keep(torch.where(late[:, None], worth, -torch.inf), self.out[:, :1], written[:, None])
        self.alive &= (self.ended < beam) & (written < self.limits)
        return (self.first_rows + parents).flatten()

    def _keep(self, worth: Tensor, out: Tensor, lengths: Tensor) -> None:
        """Hypotheses [B, K] that have ended, [B, K, T] tokens: the best of all are kept."""
        kept = torch.cat([self.best, worth], 1).topk(self.best.shape[1])
        self.best.copy_(kept.values)
        self.best_out.copy_(_select(torch.cat([self.best_out, out], 1), kept.indices))
        lengths = torch.cat([self.best_lengths, lengths], 1)
        self.best_lengths.copy_(lengths.gather(1, kept.indices))

    def found(self, places: Tensor, positions: Tensor) -> Found:
        return Found(
            self.best_out[places, :, len(self.prefix) :],
            self.best_lengths[places],
            self.best[places],
            self.ended[places] >= self.beam,
        )


def _select(tokens: Tensor, index: Tensor) -> Tensor:
    """Rows of each sentence: tokens [B, N, T], index [B, K] -> [B, K, T]."""
    return tokens.gather(1, index[:, :, None].expand(-1, -1, tokens.shape[2]))


def forced(tokens: Tensor, prefix: Tensor, positions: Tensor) -> Tensor:
    """Tokens [B, K] at positions [B]; those of the prefix, where it is not over."""
    if not len(prefix):
        return tokens
    given = prefix[positions.clamp(max=len(prefix) - 1)][:, None]
    return torch.where((positions < len(prefix))[:, None], given, tokens)


def draw(logits: Tensor, sampling: Sampling, numbers: Tensor, positions: Tensor) -> Tensor:
    """A column of each row of logits [B, V], at random.

    What is drawn depends on the seed, the number of the sentence and the position alone, not on
    the rows beside it: a run that was stopped continues as if it had not been.
    """
    index = fallback = None
    if sampling.top_k and sampling.top_k < logits.shape[1]:
        # topk may take any of equal logits, here others than there: all of them count
        best = logits.topk(sampling.top_k + 1)
        least, next_one = best.values[:, -2:-1], best.values[:, -1:]
        if logits.is_cuda or bool((least == next_one).any()):  # a recorded step cannot ask
            logits = logits.masked_fill(logits < least, -torch.inf)
            fallback = best.indices[:, :1]
        else:  # the same in the same order, without what cannot be drawn
            index = best.indices[:, :-1].sort(-1).values
            logits = logits.gather(1, index)
        chances = ((logits - best.values[:, :1]) / sampling.temperature).exp()
    else:
        scaled = (logits - logits.amax(-1, keepdim=True)) / sampling.temperature
        chances = torch.softmax(scaled.masked_fill(logits.isneginf(), -torch.inf), -1)
    sums = chances.cumsum(-1)
    place = _uniform(sampling.seed, numbers, positions)[:, None] * sums[:, -1:]
    column = torch.searchsorted(sums, place.to(sums.dtype), right=True)
    column = column.clamp(max=logits.shape[1] - 1)
    if fallback is not None:  # sums of a GPU are rounded: they may rise where there is no chance
        column = torch.where(chances.gather(1, column) > 0, column, fallback)
    return (column if index is None else index.gather(1, column))[:, 0]


def _uniform(seed: int, numbers: Tensor, positions: Tensor) -> Tensor:
    """Numbers from 0 to 1, without 1, of 23 bits: a hash (SplitMix64's) of whole numbers [B]."""
    x = torch.full_like(numbers, _signed(seed * 0x9E3779B97F4A7C15))
    for part in (numbers, positions):
        x = x + (part + 1) * _signed(0x9E3779B97F4A7C15)
        x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
        x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
        x = x ^ _shift(x, 31)
    return _shift(x, 41).float() * 2.0**-23


def _shift(x: Tensor, bits: int) -> Tensor:
    """To the right, with zeros from the left."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    """The same 64 bits as a number with a sign."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
