"""Beam search over whole sentences, for offline models; a session is the greedy search.

score(y) = log p(y | x) / |y|^penalty,  |y| with its end-of-sequence
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from simultan.data.vocabulary import BOS, EOS
from simultan.model import TranslationModel
from simultan.model.state import State


@dataclass(frozen=True)
class Hypothesis:
    """A translation, without its end-of-sequence, and its score."""

    tokens: tuple[int, ...]
    score: float


@dataclass
class _Search:
    """The search for one sentence."""

    first_row: int
    longest: int
    beams: list[Hypothesis]  # unfinished, best first; their scores are sums
    best: Hypothesis | None = None
    finished: int = 0

    def grow(
        self, scores: list[list[float]], tokens: list[list[int]], beam: int, penalty: float
    ) -> list[int]:
        """Take the best continuations; returns the old beam that each new one continues."""
        grown = sorted(
            (
                (old.score + score, i, token)
                for i, old in enumerate(self.beams)
                for score, token in zip(scores[i], tokens[i], strict=True)
            ),
            reverse=True,
        )
        beams: list[Hypothesis] = []
        parents: list[int] = []
        for rank, (total, i, token) in enumerate(grown):
            written = self.beams[i].tokens
            if token == EOS and rank < beam:
                self.finished += 1
                self.offer(Hypothesis(written, total / (len(written) + 1) ** penalty))
            elif token != EOS and len(beams) < beam:
                beams.append(Hypothesis((*written, token), total))
                parents.append(i)
        self.beams = beams
        if self.best is None and len(beams[0].tokens) >= self.longest:  # it will never end
            self.offer(Hypothesis(beams[0].tokens, beams[0].score / self.longest**penalty))
        return parents

    def offer(self, hypothesis: Hypothesis) -> None:
        if self.best is None or hypothesis.score > self.best.score:
            self.best = hypothesis

    def continues(self, beam: int) -> bool:
        return self.finished < beam and len(self.beams[0].tokens) < self.longest


@torch.inference_mode()
def beam_search(
    model: TranslationModel, sources: Sequence[Sequence[int]], beam: int = 4, penalty: float = 1.0
) -> list[Hypothesis]:
    """The best translation of each source (token ids that end with end-of-sequence)."""
    if model.policy.name != "offline":
        raise ValueError(
            f"beam = {beam}: beam search hears the whole sentence, so it needs an offline model;"
            f" this one is {model.policy.name}"
        )
    if beam < 1:
        raise ValueError(f"beam = {beam}: it must be at least 1")
    nothing = Hypothesis((), 0.0)
    searches = [
        _Search(beam * i, 2 * len(source) + 30, [nothing]) for i, source in enumerate(sources)
    ]
    active = [s for s, source in zip(searches, sources, strict=True) if len(source) > 1]
    state = _read(model, sources, beam)
    while active:
        rows = [s.first_row + i for s in active for i in range(len(s.beams))]
        last = [(BOS, *model.target_prefix, *old.tokens)[-1] for s in active for old in s.beams]
        logits = model.step(last, state, rows, [0.5] * len(rows)).logits
        logits[:, :EOS] = -torch.inf  # padding and begin are never written
        top = torch.log_softmax(logits.double(), -1).topk(min(2 * beam, logits.shape[1]))
        scores, tokens = top.values.tolist(), top.indices.tolist()
        state.commit(rows)
        parents = list(range(beam * len(sources)))
        start = 0
        for s in active:
            end = start + len(s.beams)
            for i, parent in enumerate(s.grow(scores[start:end], tokens[start:end], beam, penalty)):
                parents[s.first_row + i] = s.first_row + parent
            start = end
        state.reorder(parents)
        active = [s for s in active if s.continues(beam)]
    return [s.best or nothing for s in searches]


def _read(model: TranslationModel, sources: Sequence[Sequence[int]], beam: int) -> State:
    """Read every source into `beam` rows, and write what stands before every target."""
    sources = [[*model.source_prefix, *source] for source in sources]
    state = model.initial_state(max(1, beam * len(sources)))
    longest = max((len(source) for source in sources), default=0)
    padded = [
        [*source, *[EOS] * (longest - len(source))] for source in sources for _ in range(beam)
    ]
    if padded:
        model.extend(
            torch.tensor(padded, device=model.output.weight.device),
            state,
            range(len(padded)),
            [len(source) for source in sources for _ in range(beam)],
            [True] * len(padded),
        )
    rows = range(len(padded))
    for token in (BOS, *model.target_prefix)[:-1]:
        model.step([token] * len(rows), state, rows, [0.5] * len(rows))
        state.commit(rows)
    return state
