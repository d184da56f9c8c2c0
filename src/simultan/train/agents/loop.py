"""fit_agent(): REINFORCE with a learned baseline, over a frozen offline model.

    grad J = mean over actions of (R_t - b_t) / sigma  grad log pi(a_t | h_t)
R_t is what is still to be earned; b_t is the mean of that in the sentence's other episodes, before
the same token, and what a small network adds to it; sigma is a running mean. Every update is a pure
function of its number and of the weights before it, so that a resumed run equals an unbroken one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from simultan import atomic
from simultan import config as configuration
from simultan.config import ConfigError, TrainConfig
from simultan.model import TranslationModel
from simultan.streaming.agents.predict import GUESS
from simultan.streaming.agents.reinforced import NUMBERS, Policy, Reinforced
from simultan.streaming.translator import Translator
from simultan.train.agents.baseline import Baseline, expect
from simultan.train.agents.episodes import (
    DrawingPredict,
    DrawingReinforced,
    Sentences,
    check_model,
    open_corpus,
    play,
)
from simultan.train.agents.language import SourceTrainer, make_source_model
from simultan.train.agents.recipe import AgentRecipe
from simultan.train.agents.reward import Episode, measure, prospects, rewards
from simultan.train.folder import RunFolder
from simultan.train.journal import Journal
from simultan.train.loop import Outcome, seed, termination
from simultan.train.validation import evaluate_translator

TERMS = {"reward": ".3f", "BLEU": ".1f", "AP": ".3f", "AL": ".2f", "entropy": ".2f"}
DIRECT = 40.0  # times the rate: how fast the policy's short way learns, which has few weights
STATE, WEIGHTS, RECIPE = "trainer.pt", "weights.safetensors", "agent.toml"
KEPT = "update", "variance", "threshold"  # numbers of a run, saved with its parts


def fit_agent(
    recipe: AgentRecipe,
    translator: Translator,
    out: str | Path,
    overwrite: bool = False,
    tensorboard: bool = True,
    stop: Callable[[], bool] | None = None,
) -> Outcome:
    """Train an agent into a folder; goes on where a run with the same recipe stopped."""
    model, folder = check_model(translator), Path(out)
    _open_folder(folder, recipe, overwrite)
    with termination() as terminated:
        run = Run(recipe, translator, model, folder, tensorboard)
        with run.journal:
            finished = run.train(lambda: terminated() or (stop is not None and stop()))
    return Outcome(run.update, finished, folder)


def _open_folder(folder: Path, recipe: AgentRecipe, overwrite: bool) -> None:
    """Refuse to go on with another agent; write agent.toml."""
    path, text = folder / RECIPE, f'name = "{recipe.agent.name}"\n\n{configuration.dump(recipe)}'
    if overwrite and path.exists():
        for name in (RECIPE, STATE, WEIGHTS, "metrics.jsonl"):
            (folder / name).unlink(missing_ok=True)
    if path.exists() and (folder / STATE).exists():
        if path.read_text("utf-8") != text:
            raise ConfigError(
                f"{folder} holds an agent with another recipe: choose another --out, or"
                " --overwrite to remove it and start anew"
            )
    elif not path.exists() and folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is neither empty nor an agent: choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


class Run:
    """The state of a run between updates."""

    def __init__(
        self,
        recipe: AgentRecipe,
        translator: Translator,
        model: TranslationModel,
        folder: Path,
        tensorboard: bool,
    ) -> None:
        self.recipe, self.translator, self.folder = recipe, translator, folder
        self.device = model.output.weight.device
        corpus = open_corpus(recipe.data.folder, translator.codec)
        self.sentences = Sentences(corpus, translator.codec, recipe.data.max_length)
        train, name = recipe.train, recipe.agent.name
        seed(train.seed, 0, 0)
        predicts = name == "predict"
        numbers, part = NUMBERS + predicts, recipe.agent
        observed = 3 * model.output.in_features + numbers
        policy = Policy(observed, part.width, 2 + predicts, part.start, part.slope, numbers)
        policy = policy.to(self.device)
        self.policy, self.baseline = policy, Baseline(recipe.agent.width).to(self.device)
        others = [p for name, p in policy.named_parameters() if not name.startswith("direct.")]
        groups = [
            {"params": [*others, *self.baseline.parameters()], "scale": 1.0},
            {"params": [*policy.direct.parameters()], "scale": DIRECT},
        ]
        self.optimizer = torch.optim.Adam(groups, lr=train.lr)
        self.variance = 0.0  # of advantages, a running mean
        self.threshold = 0.5  # above which it writes live: as often as in training
        self.update = 0
        self.parts: dict[str, Any] = {
            "policy": policy,
            "baseline": self.baseline,
            "optimizer": self.optimizer,
        }
        self.agent: Reinforced
        self.source: SourceTrainer | None = None
        if predicts:
            source = make_source_model(translator.codec, recipe.source.width).to(self.device)
            self.source = SourceTrainer(source, recipe.source, self.sentences, train.seed)
            self.parts["source"] = self.source
            self.agent = DrawingPredict(policy, source)
        else:
            self.agent = DrawingReinforced(policy)
        if (folder / STATE).exists():
            self._restore(torch.load(folder / STATE, map_location=self.device, weights_only=True))
        rows = train.sentences * train.samples
        self.session = translator.session(rows=rows, segment=False)
        settings = TrainConfig(updates=train.updates)
        self.journal = Journal(RunFolder(folder), settings, self.update, tensorboard, TERMS)
        self._since, self._actions = time.perf_counter(), 0

    def train(self, terminated: Callable[[], bool]) -> bool:
        """Update until the end (True) or until told to stop."""
        source, updates = self.source, self.recipe.source.updates
        # the language model learns before the first episode
        if source is not None and not self._repeat("source", source, updates, terminated):
            return False
        if self.update:
            self.journal.say(f"{self.folder}: continues at update {self.update}")
        return self._repeat("train", self, self.recipe.train.updates, terminated)

    def _repeat(
        self, kind: str, trainer: Run | SourceTrainer, total: int, terminated: Callable[[], bool]
    ) -> bool:
        """Steps until the end (True) or until told to stop, with reports and saves."""
        settings, notes = self.recipe.train, list[dict[str, float]]()
        while trainer.update < total:
            notes.append(trainer.step())
            done, last = trainer.update, trainer.update == total
            if last or done % settings.log_every == 0:
                self._log(kind, done, notes)
                notes = []
            stopping = terminated()
            if last or stopping or done % settings.save_every == 0:
                self._save()
            every = settings.validate_every if trainer is self else 0
            if every and done % every == 0:
                self._validate()
            if stopping and not last:
                return False
        return True

    def step(self) -> dict[str, float]:
        """Play a batch of episodes, and learn from it."""
        settings = self.recipe.train
        self.update += 1
        seed(settings.seed, self.update, 0)
        generator = torch.Generator().manual_seed(torch.initial_seed() % 2**63)
        numbers = self.sentences.draw(settings.sentences, generator)
        sentences = [self.sentences[n] for n in numbers for _ in range(settings.samples)]
        episodes = play(self.session, self.agent, sentences)
        earned = [rewards(episode, self.recipe.reward) for episode in episodes]
        found = self._learn(episodes)
        self._actions += sum(map(len, earned))
        return found | measure(episodes, earned, self.source is not None)

    def _learn(self, episodes: list[Episode]) -> dict[str, float]:
        settings, device = self.recipe.train, self.device
        left = 1 - (self.update - 1) / settings.updates
        observed = pad_sequence([torch.stack(e.observed) for e in episodes], batch_first=True)
        ahead = [prospects(episode, self.recipe.reward) for episode in episodes]
        others = expect(episodes, ahead, settings.samples)
        actions = _padded([e.actions for e in episodes], device).long()
        free = _padded([e.free for e in episodes], device)
        scores, states = self.policy(observed.clone())
        if self.recipe.agent.name == "predict":  # as the agent does
            guessed = _padded([e.guessed for e in episodes], device).bool()
            taken = torch.zeros_like(scores, dtype=torch.bool)
            taken[..., GUESS] = guessed
            scores = scores.masked_fill(taken, -1e9)
        expected = self.baseline(states.detach(), _padded(others, device))
        count = free.sum().clamp(min=1)
        gap = _padded(ahead, device) - expected
        square = (gap.detach() ** 2 * free).sum() / count
        self.variance = (
            0.9 * self.variance + 0.1 * float(square) if self.variance else float(square)
        )
        advantage = gap.detach() / (self.variance**0.5 + 1e-6)
        log_p = scores.log_softmax(-1)
        chosen = log_p.gather(-1, actions[..., None]).squeeze(-1)
        entropy = -((log_p.exp() * log_p).sum(-1) * free).sum() / count
        loss = -(advantage * chosen * free).sum() / count - settings.entropy * left * entropy
        loss = loss + (gap**2 * free).sum() / count / (self.variance + 1e-6)
        self._set_threshold(scores.detach().softmax(-1)[..., 0][free > 0])
        for group in self.optimizer.param_groups:
            group["lr"] = settings.lr * left * group["scale"]
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), settings.clip)
        self.optimizer.step()
        return {"entropy": float(entropy.detach()), "baseline_error": float(square) ** 0.5}

    def _set_threshold(self, p: Tensor) -> None:
        """Of probabilities to write, as many are to lie above it as their mean says."""
        if len(p):
            middle = float(p.quantile(1 - p.mean()))
            self.threshold += (middle - self.threshold) / min(self.update, 10)

    def _log(self, kind: str, done: int, notes: list[dict[str, float]]) -> None:
        values = {name: statistics.fmean(note[name] for note in notes) for name in notes[0]}
        if kind == "source":
            values = {"source_update": done, **values}
        else:
            now = time.perf_counter()
            values["tokens_per_second"] = self._actions / (now - self._since)
            self._since, self._actions = now, 0
        self.journal.note(kind, self.update, values)

    def _validate(self) -> None:
        """Quality and latency on the validation set, as the agent decides live."""
        if not self.journal.validated(self.update):
            folder, sentences = self.recipe.data.folder, self.recipe.train.validate_sentences
            decoding = f"agent={self.folder.absolute()}"
            found = evaluate_translator(self.translator, folder, sentences, decoding)
            self.journal.note("valid", self.update, found)

    def _save(self) -> None:
        """The agent and, to resume, the trainer: each file in one step."""
        weights = {f"policy.{k}": v for k, v in self.policy.state_dict().items()}
        if self.source is not None:
            weights |= {f"source.{k}": v for k, v in self.source.model.state_dict().items()}
        state = {name: getattr(self, name) for name in KEPT}
        state |= {name: part.state_dict() for name, part in self.parts.items()}
        weights["threshold"] = torch.tensor(self.threshold)
        weights = {k: v.detach().cpu().contiguous() for k, v in weights.items()}
        with atomic.place(self.folder / WEIGHTS) as partial:
            save_file(weights, partial)
            partial.chmod(0o644)  # safetensors writes it for us alone
        with atomic.place(self.folder / STATE) as partial:
            torch.save(state, partial)

    def _restore(self, state: dict[str, Any]) -> None:
        for name in KEPT:
            setattr(self, name, state[name])
        for name, part in self.parts.items():
            part.load_state_dict(state[name])


def _padded(rows: list[Any], device: torch.device) -> Tensor:
    tensors = [torch.tensor(row, dtype=torch.float32) for row in rows]
    return pad_sequence(tensors, batch_first=True).to(device)
