"""Episodes: sentences that are translated in a session whose agent draws its actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from simultan.data.codec import Codec
from simultan.data.shards import Corpus
from simultan.data.vocabulary import EOS
from simultan.streaming.agents import Seen
from simultan.streaming.agents.predict import Predict
from simultan.streaming.agents.reinforced import Reinforced
from simultan.streaming.deciders import AgentsDecide
from simultan.streaming.row import Choice
from simultan.streaming.session import Session
from simultan.train.agents.reward import Episode

__all__ = ["DrawingPredict", "DrawingReinforced", "Played", "Sentence", "Sentences", "play"]

BUCKET = 512  # sentences of about the same length, from which those of an update are drawn


@dataclass(frozen=True)
class Sentence:
    """One pair of the corpus."""

    text: str
    words: int
    reference: list[int]  # without its end


class Sentences:
    """The training sentences of a corpus that are not too long, by length."""

    def __init__(self, corpus: Corpus, codec: Codec, longest: int) -> None:
        self.corpus, self.codec = corpus, codec
        source, target = corpus.source.lengths() - 1, corpus.target.lengths() - 1
        kept = numpy.flatnonzero((source > 0) & (target > 0) & (source <= longest)
                                 & (target <= longest))  # fmt: skip
        if not len(kept):
            raise ValueError(f"{corpus.folder}: no sentence of at most {longest} tokens")
        self.order = kept[numpy.argsort(source[kept], kind="stable")]

    def draw(self, count: int, generator: torch.Generator, alike: bool = True) -> list[int]:
        """Numbers of sentences; alike: of about the same length."""
        total = len(self.order)
        first, size = 0, total
        if alike and total > BUCKET:
            size = BUCKET
            first = int(torch.randint(total - size + 1, (1,), generator=generator))
        picked = torch.randint(size, (count,), generator=generator) + first
        return [int(self.order[i]) for i in picked.tolist()]

    def __getitem__(self, number: int) -> Sentence:
        text, words = self._text(number)
        return Sentence(text, words, self._ids(self.corpus.target, number)[:-1])

    def source(self, number: int) -> list[int]:
        """Source tokens, with the end."""
        return self._ids(self.corpus.source, number)

    def _ids(self, side: object, number: int) -> list[int]:
        rows = side.rows(numpy.array([number]), int(side.lengths()[number]))  # type: ignore[attr-defined]
        found: list[int] = rows[0].tolist()
        return found

    def _text(self, number: int) -> tuple[str, int]:
        vocabulary, words, open_ = self.codec.source_vocabulary, [], []
        for token in self.source(number):
            open_.append(token)
            if token == EOS or vocabulary.ends_word(token):
                words.append(vocabulary.decode_word(open_))
                open_ = []
        text = " ".join(word for word in words if word)
        return text, len(self.codec.split_source(text))


@dataclass
class Played:
    """An episode, and what the policy saw before each of its actions."""

    episode: Episode
    observed: list[Tensor]  # [O] each


class Draws:
    """An agent that draws its actions and takes notes, for the trainer."""

    def pick(self, seen: Seen, observed: Tensor, scores: Tensor) -> list[int]:
        drawn: list[int] = torch.multinomial(scores.softmax(1), 1)[:, 0].tolist()
        for i, memory in enumerate(seen.memory):
            played: Played = memory["played"]
            played.observed.append(observed[i])
            episode = played.episode
            episode.actions.append(drawn[i])
            episode.free.append(not seen.ended[i])
            episode.read.append(seen.read[i])
            episode.guessed.append(seen.guessed[i] > 0)
            episode.written.append(None)
        return drawn


class DrawingReinforced(Draws, Reinforced):
    pass


class DrawingPredict(Draws, Predict):
    pass


def play(session: Session, agent: Reinforced, sentences: Sequence[Sentence]) -> list[Played]:
    """Translate one sentence in each row of a session, without segments, to its end."""
    decider = session.decider
    assert isinstance(decider, AgentsDecide)
    played = [Played(Episode(s.words, s.reference), []) for s in sentences]

    def note(choice: Choice) -> None:
        played[choice.row].episode.written[-1] = choice.token

    def judge(row: int, right: bool) -> None:
        played[row].episode.right.append(right)

    session.on_token, decider.on_guess = note, judge
    for row, sentence in enumerate(sentences):
        session.reset(row)
        decider.agents[row] = agent
        decider.memory[row] = {"played": played[row]}
        session.push(sentence.text, row)
        session.close(row)
    rows = range(len(sentences))
    while any(not session.rows[row].done for row in rows):
        session.advance(rows)
    session.on_token = decider.on_guess = None
    return played
