"""An agent that imitates: a classifier waits, commits, or guesses the next word or the final verb.

After Grissom et al. 2014. `simultan train-agent` makes its folder; see train/agents/imitation.py.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from simultan.data.vocabulary import EOS
from simultan.streaming.agents.guesser import Guesser, Word, group
from simultan.streaming.agents.protocol import READ, WRITE, Agent, Answer, Guess, Seen

NAMES = ("wait", "commit", "next_word", "verb")
WAIT, COMMIT, NEXT, VERB = range(4)
FEATURES = (
    "probability", "margin", "entropy", "end", "steady", "waited", "attention_last",
    "attention_two", "distance", "lag", "read", "next_share", "verb_share", "after_next",
    "after_verb",
)  # fmt: skip


class Classifier(nn.Module):
    """Features [R, F] -> log probabilities of the actions [R, A]."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(len(FEATURES)))
        self.register_buffer("deviation", torch.ones(len(FEATURES)))
        self.inner = nn.Linear(len(FEATURES), hidden)
        self.outer = nn.Linear(hidden, len(NAMES))

    def forward(self, features: Tensor) -> Tensor:
        x = (features - self.mean) / self.deviation
        scores: Tensor = self.outer(self.inner(x).tanh())
        return scores.log_softmax(-1)


@dataclass(frozen=True)
class View:
    """What the classifier sees of some rows, and what it could guess there."""

    features: Tensor  # [R, F]
    candidates: list[int]  # the model's next tokens
    guesses: list[dict[int, Word]]  # of each row: the words of NEXT and VERB


def look(seen: Seen, guesser: Guesser) -> View:
    """The model's confidence, where it looks, and what the guesser expects.

    `seen.memory` keeps what was last seen of a row, and `note` what was done.
    """
    best, top = seen.scores.best, seen.scores.log_probs.topk(2, -1).values.float()
    entropy = -(seen.scores.log_probs.exp() * seen.scores.log_probs.clamp(min=-50)).sum(-1)
    attention = seen.attention().float().tolist()
    pairs = zip(seen.source(), seen.source_words(), strict=True)
    rows, guesses = [], []
    for row, (tokens, word_of) in enumerate(pairs):
        memory, read = seen.memory[row], seen.read[row]
        if memory.get("read") != read:
            words = group(tokens, word_of)
            found = {NEXT: guesser.next_word(words), VERB: guesser.final_verb(words)}
            memory.update(read=read, found=found)
        found = memory["found"]
        shown = read + bool(seen.guessed[row])
        weights = attention[row][:shown]
        steady = memory["steady"] + 1 if memory.get("candidate") == best[row] else 0
        waited = read - memory.setdefault("since", read)
        first, second = top[row].tolist()
        rows.append([
            float(torch.tensor(first).exp()), min(10.0, first - second), float(entropy[row]),
            float(best[row] == EOS), min(5.0, steady), min(8.0, waited), weights[-1],
            sum(weights[-2:]), min(8.0, shown - 1.0 - weights.index(max(weights))),
            max(-10.0, min(20.0, read - seen.written[row])), min(40.0, read), found[NEXT][1],
            found[VERB][1], float(memory.get("guess") == NEXT), float(memory.get("guess") == VERB),
        ])  # fmt: skip
        memory.update(candidate=best[row], steady=steady)
        open_ = not seen.guessed[row] and not seen.ended[row]
        guesses.append({action: word for action, (word, _) in found.items() if word and open_})
    return View(torch.tensor(rows), best, guesses)


def note(memory: dict[str, object], action: int) -> None:
    """What is done in a row."""
    if action == COMMIT:
        memory.pop("candidate", None)  # another token is next
        memory.pop("since", None)
    elif action == WAIT:
        memory.pop("guess", None)
    else:
        memory["guess"] = action


class Imitation(Agent):
    """Commits where the classifier is sure enough of it."""

    wants_attention = guesses = True

    def __init__(self, classifier: Classifier, guesser: Guesser, threshold: float) -> None:
        self.classifier, self.guesser, self.threshold = classifier.eval(), guesser, threshold

    def decide(self, seen: Seen) -> Sequence[Answer]:
        view = look(seen, self.guesser)
        chances = self.classifier(view.features).exp().tolist()
        answers: list[Answer] = []
        for row, chance in enumerate(chances):
            possible = [WAIT, *view.guesses[row]]
            action = max(possible, key=chance.__getitem__)
            if chance[COMMIT] >= self.threshold and view.candidates[row] != EOS:
                action = COMMIT
            note(seen.memory[row], COMMIT if seen.ended[row] else action)
            answers.append(self._answer(action, view.guesses[row]))
        return answers

    @staticmethod
    def _answer(action: int, guesses: dict[int, Word]) -> Answer:
        if action in guesses:
            return Guess(guesses[action])
        return WRITE if action == COMMIT else READ

    def save(self, folder: Path, recipe: str = "") -> None:
        """`recipe`: how it was trained, for who wants to know."""
        folder.mkdir(parents=True, exist_ok=True)
        self.guesser.save(folder / "guesser.safetensors")
        save_file(self.classifier.state_dict(), folder / "classifier.safetensors")
        names = ", ".join(f'"{name}"' for name in FEATURES)
        text = f'name = "imitation"\nthreshold = {self.threshold}\nfeatures = [{names}]\n\n{recipe}'
        (folder / "agent.toml").write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Imitation:
        settings = tomllib.loads((folder / "agent.toml").read_text(encoding="utf-8"))
        if settings.get("features") != list(FEATURES):
            raise ValueError(f"{folder} was trained by another simultan: train it again")
        weights = load_file(folder / "classifier.safetensors")
        classifier = Classifier(len(weights["inner.bias"]))
        classifier.load_state_dict(weights)
        guesser = Guesser.load(folder / "guesser.safetensors")
        return cls(classifier, guesser, float(settings["threshold"]))
