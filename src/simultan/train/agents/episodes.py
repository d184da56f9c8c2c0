"""Episodes: sentences that are translated in a session whose agent draws its actions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from simultan.data.codec import Codec
from simultan.data.shards import Corpus, Ints, TokenSide, WordSide
from simultan.data.vocabulary import EOS, Vocabulary
from simultan.model import TranslationModel
from simultan.streaming.agents import Seen
from simultan.streaming.agents.guesser import Word
from simultan.streaming.agents.predict import Predict
from simultan.streaming.agents.reinforced import Reinforced
from simultan.streaming.deciders import AgentsDecide
from simultan.streaming.row import Choice
from simultan.streaming.session import Session
from simultan.streaming.translator import Translator
from simultan.train.agents.reward import Episode

BUCKET = 512  # sentences of about the same length, from which those of an update are drawn


def check_model(translator: Translator) -> TranslationModel:
    """The model over which an agent is to be trained, if that is possible."""
    model = translator.model
    if not isinstance(model, TranslationModel) or model.policy.name != "offline":
        raise ValueError(
            "an agent is trained over an offline model of simultan: train one with"
            ' policy.name = "offline" first'
        )
    return model


def open_corpus(folder: str, codec: Codec, sides: Sequence[str] = ("source", "target")) -> Corpus:
    """A prepared corpus, if its vocabularies are those of the model."""
    own = Codec.load(folder)
    names = [f"{side}_vocabulary" for side in sides]
    if any(getattr(codec, name).pieces != getattr(own, name).pieces for name in names):
        raise ValueError(f"{folder}: its vocabularies are not those of the model")
    return Corpus(folder)


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
        self.lengths = corpus.source.lengths(), corpus.target.lengths()
        source, target = (lengths - 1 for lengths in self.lengths)
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
        vocabulary = self.codec.source_vocabulary
        words = map(vocabulary.decode_word, group_words(self.source(number), vocabulary))
        text = " ".join(word for word in words if word)
        target = read_tokens(self.corpus.target, number, self.lengths[1])
        return Sentence(text, len(self.codec.split_source(text)), target[:-1])

    def source(self, number: int) -> list[int]:
        """Source tokens, with the end."""
        return read_tokens(self.corpus.source, number, self.lengths[0])


def read_tokens(side: TokenSide | WordSide, number: int, lengths: Ints) -> list[int]:
    """The tokens of one sentence; lengths [N] of all."""
    found: list[int] = side.rows(numpy.array([number]), int(lengths[number]))[0].tolist()
    return found


def group_words(tokens: Iterable[int], vocabulary: Vocabulary) -> list[Word]:
    """Tokens as words, the last of which is the end."""
    words: list[Word] = []
    begun: list[int] = []
    for token in tokens:
        begun.append(token)
        if token == EOS or vocabulary.ends_word(token):
            words.append(tuple(begun))
            begun = []
    return words


class Draws:
    """An agent that draws its actions and takes notes, for the trainer."""

    def pick(self, seen: Seen, observed: Tensor, scores: Tensor) -> list[int]:
        drawn: list[int] = torch.multinomial(scores.softmax(1), 1)[:, 0].tolist()
        for i, memory in enumerate(seen.memory):
            episode: Episode = memory["episode"]
            episode.observed.append(observed[i])
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


def play(session: Session, agent: Reinforced, sentences: Sequence[Sentence]) -> list[Episode]:
    """Translate one sentence in each row of a session, without segments, to its end."""
    decider = session.decider
    assert isinstance(decider, AgentsDecide)
    episodes = [Episode(s.words, s.reference) for s in sentences]

    def note(choice: Choice) -> None:
        episodes[choice.row].written[-1] = choice.token

    def judge(row: int, right: bool) -> None:
        episodes[row].right.append(right)

    session.on_token, decider.on_guess = note, judge
    for row, sentence in enumerate(sentences):
        session.reset(row)
        decider.agents[row] = agent
        decider.memory[row] = {"episode": episodes[row]}
        session.push(sentence.text, row)
        session.close(row)
    rows = range(len(sentences))
    while any(not session.rows[row].done for row in rows):
        session.advance(rows)
    session.on_token = decider.on_guess = None
    return episodes
