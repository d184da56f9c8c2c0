"""Trains an agent that imitates an oracle, which knows the translation of the whole sentence.

The oracle commits the model's next token where the model would also write it with the whole
sentence in view, guesses where a guess makes it so, and waits otherwise, while it has patience. It
plays the first portion of the sentences; in the others the classifier decides that was learnt so
far, and the oracle says what would have been right: so the classifier meets its own mistakes. What
happened is saved after each portion: a killed run resumes there, and equals an unbroken one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from simultan import atomic
from simultan import config as configuration
from simultan.config import Amount, ConfigError, Count, Sections, Share
from simultan.data.codec import Codec
from simultan.data.vocabulary import EOS
from simultan.data.writer import WordWriter
from simultan.model import TranslationModel
from simultan.streaming.agents.guesser import Guesser, Word
from simultan.streaming.agents.imitation import (
    COMMIT,
    NAMES,
    WAIT,
    Classifier,
    Imitation,
    look,
    note,
)  # fmt: skip
from simultan.streaming.agents.protocol import READ, WRITE, Agent, Answer, Guess, Seen
from simultan.streaming.backends.incremental import Incremental
from simultan.streaming.deciders import AgentsDecide
from simultan.streaming.row import Choice
from simultan.streaming.session import Session
from simultan.streaming.translator import Translator
from simultan.train.agents.episodes import check_model, group_words, open_corpus, read_tokens
from simultan.train.loop import termination

PORTION = 256  # sentences that are played before what the oracle did is saved
THRESHOLDS = 0.3, 0.9  # between which those of a student are drawn
PLAYED = "played.pt"  # what it did, until the classifier has learnt from it


@dataclass(frozen=True)
class DataPart:
    """The prepared corpus whose training sentences are played."""

    folder: str = ""  # what `simultan prepare` wrote, with the model's vocabularies
    max_length: Count = 60  # longer sentences are not played; in words


@dataclass(frozen=True)
class AgentPart:
    """The agent."""

    name: Literal["imitation"] = "imitation"
    hidden: Count = 32  # width of the classifier
    threshold: Share = 0.85  # commit where the classifier is so sure of it


@dataclass(frozen=True)
class OraclePart:
    """What is to be imitated."""

    sentences: Count = 2_000  # that the oracle plays
    counted: Count = 200_000  # whose words are counted, to guess others
    explore: Share = 0.2  # how often the oracle waits although it need not
    patience: Count = 4  # words after which it waits no longer for a better token


@dataclass(frozen=True)
class TrainPart:
    """How the classifier learns."""

    epochs: Count = 300  # over all that the oracle did
    lr: Amount = 0.01
    seed: int = 1


@dataclass(frozen=True)
class ImitationRecipe(Sections):
    """A whole run."""

    data: DataPart = field(default_factory=DataPart)
    agent: AgentPart = field(default_factory=AgentPart)
    oracle: OraclePart = field(default_factory=OraclePart)
    train: TrainPart = field(default_factory=TrainPart)


class TokenText:
    """Sentences whose words are spelled as their tokens: nothing is lost on the way to a model."""

    target_language = ""  # of no language: its words are not joined as those of one

    def __init__(self, codec: Codec) -> None:
        self.codec = codec

    def split_source(self, text: str) -> list[str]:
        return text.split()

    def encode_source_word(self, word: str) -> list[int]:
        return [int(token.translate(_DIGITS), 10) for token in word.split("z")]

    def writer(self) -> WordWriter:
        return self.codec.writer()

    @staticmethod
    def spell(words: Sequence[Word]) -> str:
        return " ".join("z".join(str(token).translate(_LETTERS) for token in w) for w in words)


_LETTERS = str.maketrans("0123456789", "abcdefghij")  # digits would be taken for numbers
_DIGITS = str.maketrans("abcdefghij", "0123456789")


class Whole:
    """What the model writes next with the whole sentence in view, whatever is written so far."""

    def __init__(self, model: TranslationModel, rows: int) -> None:
        self.backend = Incremental(model, rows)
        self.lengths = [0] * rows  # of the sentences, in tokens
        self.known: dict[int, int] = {}  # the next token of a row

    def begin(self, row: int, words: Sequence[Word]) -> None:
        tokens = [*(token for word in words for token in word), EOS]
        self.backend.reset(row)
        self.backend.read([row], [tokens], [True])
        self.lengths[row] = len(tokens)
        self.known.pop(row, None)

    def next(self, rows: Sequence[int]) -> list[int]:
        new = [row for row in rows if row not in self.known]
        if new:
            scores = self.backend.score(new, [self.lengths[row] for row in new], attention=False)
            self.known.update(zip(new, scores.best, strict=True))
        return [self.known[row] for row in rows]

    def write(self, choice: Choice) -> None:
        self.next([choice.row])
        self.backend.commit([choice.row], [choice.token])
        del self.known[choice.row]


class Oracle(Agent):
    """Knows what is right, and records it; does so itself, or lets its student decide."""

    wants_attention = guesses = True
    whole: Whole

    def __init__(
        self,
        guesser: Guesser,
        part: OraclePart,
        seed: int | Sequence[int],
        student: Classifier | None = None,
    ) -> None:
        self.guesser, self.part, self.student = guesser, part, student
        self.random = np.random.default_rng(seed)
        self.features: list[Tensor] = []
        self.actions: list[int] = []

    def decide(self, seen: Seen) -> Sequence[Answer]:
        view = look(seen, self.guesser)
        truths = self.whole.next([memory["row"] for memory in seen.memory])
        chances = [0.0] * len(truths)
        if self.student is not None:
            chances = self.student(view.features)[:, COMMIT].exp().tolist()
        answers: list[Answer] = []
        for row, memory in enumerate(seen.memory):
            token, tried = view.candidates[row], memory.pop("tried", None)
            tired = seen.read[row] - memory["since"] >= self.part.patience
            right = token != EOS and (tired or token == truths[row])
            action = COMMIT
            answer: Answer = WRITE
            if not seen.ended[row]:
                if tried is not None and right:
                    self.actions[tried] = memory["guess"]
                self.features.append(view.features[row])
                self.actions.append(COMMIT if right else WAIT)
                guesses = view.guesses[row]
                if not self._commits(right, chances[row], memory) or token == EOS:
                    action, answer = WAIT, READ
                    if not right and guesses:
                        action = int(self.random.choice(sorted(guesses)))
                        memory["tried"], answer = len(self.actions) - 1, Guess(guesses[action])
            note(memory, action)
            answers.append(answer)
        return answers

    def _commits(self, right: bool, chance: float, memory: dict[str, Any]) -> bool:
        """A student commits above a threshold that is drawn for each sentence."""
        if self.student is None:
            return right and self.random.random() >= self.part.explore
        if "threshold" not in memory:
            memory["threshold"] = self.random.uniform(*THRESHOLDS)
        return bool(chance >= memory["threshold"])


def fit_imitation(
    recipe: ImitationRecipe,
    translator: Translator,
    out: Path,
    overwrite: bool = False,
    say: Callable[[str], None] = print,
    stop: Callable[[], bool] | None = None,
) -> dict[str, float] | None:
    """Train an agent over an offline model into a folder; metrics.json says how it went.

    Goes on where a run with the same recipe stopped. None: it was told to stop.
    """
    check_model(translator)
    codec, state = translator.codec, _open_folder(out, recipe, overwrite)
    corpus, oracle_part = open_corpus(recipe.data.folder, codec, ("source",)), recipe.oracle
    random = np.random.default_rng(recipe.train.seed)
    order = random.permutation(len(corpus))[: oracle_part.counted]
    lengths = corpus.source.lengths()
    tokens = (read_tokens(corpus.source, pair, lengths) for pair in order)
    sentences = [group_words(line, codec.source_vocabulary) for line in tokens]
    german = codec.source_language == "de"  # whose verbs come last
    guesser = Guesser.learn(sentences, codec.source_vocabulary, german)
    say(f"{len(guesser.contexts):,} contexts and {len(guesser.verbs)} final verbs can be guessed")
    fits = [words[:-1] for words in sentences if 1 < len(words) <= recipe.data.max_length]
    fits = fits[: oracle_part.sentences]
    if state["features"]:
        say(f"{out}: continues after {len(state['features']) * PORTION:,} sentences")
    with termination() as terminated:
        for number in range(len(state["features"]), -(-len(fits) // PORTION)):
            student = None
            if number:
                student, _ = fit(torch.cat(state["features"]), torch.cat(state["actions"]), recipe)
            oracle = Oracle(guesser, oracle_part, [recipe.train.seed, number], student)
            play(translator, fits[number * PORTION : (number + 1) * PORTION], oracle)
            state["features"].append(torch.stack(oracle.features))
            state["actions"].append(torch.tensor(oracle.actions))
            with atomic.place(out / PLAYED) as partial:
                torch.save(state, partial)
            if terminated() or (stop is not None and stop()):
                return None
    features, actions = torch.cat(state["features"]), torch.cat(state["actions"])
    found = {"decisions": float(len(actions))}
    found |= {name: float((actions == n).float().mean()) for n, name in enumerate(NAMES)}
    classifier, measured = fit(features, actions, recipe)
    found |= measured
    say(", ".join(f"{name} {value:.3f}" for name, value in found.items()))
    Imitation(classifier, guesser, recipe.agent.threshold).save(out, configuration.dump(recipe))
    (out / "metrics.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (out / PLAYED).unlink()
    return found


def _open_folder(out: Path, recipe: ImitationRecipe, overwrite: bool) -> dict[str, Any]:
    """What an unfinished run with this recipe has played; of no other run anything is kept."""
    text = configuration.dump(recipe)
    if (out / PLAYED).exists() and not overwrite:
        state: dict[str, Any] = torch.load(out / PLAYED, weights_only=True)
        if state["recipe"] == text:
            return state
        raise ConfigError(
            f"{out} holds an agent with another recipe: choose another --out, or --overwrite to"
            " remove it and start anew"
        )
    if out.exists() and any(out.iterdir()) and not overwrite:
        raise ValueError(f"{out} is not empty: choose another --out, or --overwrite")
    out.mkdir(parents=True, exist_ok=True)
    return {"recipe": text, "features": [], "actions": []}


@torch.inference_mode()
def play(
    translator: Translator, sentences: Sequence[list[Word]], oracle: Oracle
) -> list[list[Choice]]:
    """Let the oracle translate sentences side by side: what it wrote, and when."""
    model = translator.model
    assert isinstance(model, TranslationModel)
    text, rows = TokenText(translator.codec), min(32, len(sentences))
    oracle.whole = Whole(model, rows)
    session = Session(model, text, rows=rows, segment=False)
    decider = session.decider
    assert isinstance(decider, AgentsDecide)
    decider.agents = [oracle] * rows
    written: list[list[Choice]] = [[] for _ in sentences]
    waiting = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))  # the longest first
    playing: dict[int, int] = {}  # the sentence of each row

    def note_token(choice: Choice) -> None:
        written[playing[choice.row]].append(choice)
        oracle.whole.write(choice)

    session.on_token = note_token
    while playing or waiting:
        for row in range(rows):
            if row not in playing and waiting:
                number = playing[row] = waiting.pop()
                session.reset(row)
                decider.memory[row]["row"] = row
                oracle.whole.begin(row, sentences[number])
                session.push(text.spell(sentences[number]), row)
                session.close(row)
        session.advance(sorted(playing))
        playing = {row: n for row, n in playing.items() if not session.rows[row].done}
    return written


def fit(
    features: Tensor, actions: Tensor, recipe: ImitationRecipe
) -> tuple[Classifier, dict[str, float]]:
    """A classifier of the oracle's actions; a tenth of them is kept to measure it."""
    torch.manual_seed(recipe.train.seed)
    classifier = Classifier(recipe.agent.hidden)
    kept = torch.arange(len(actions)) % 10 == 0
    own, labels = features[~kept], actions[~kept]
    classifier.mean.copy_(own.mean(0))
    classifier.deviation.copy_(own.std(0).clamp(min=1e-3))
    optimizer = torch.optim.Adam(classifier.parameters(), recipe.train.lr)
    for _ in range(recipe.train.epochs):
        optimizer.zero_grad()
        F.nll_loss(classifier(own), labels).backward()
        optimizer.step()
    with torch.inference_mode():
        scores = classifier(features[kept])
    chosen, wanted = scores.argmax(-1), actions[kept]
    commits = scores[:, COMMIT].exp() >= recipe.agent.threshold
    return classifier, {
        "loss": float(F.nll_loss(scores, wanted)),
        "accuracy": float((chosen == wanted).float().mean()),
        "committed_rightly": float((wanted[commits] == COMMIT).float().mean()),
        "committed": float(commits[wanted == COMMIT].float().mean()),
    }
