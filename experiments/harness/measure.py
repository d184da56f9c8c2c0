"""What is measured of a trained model: quality and latency of a set, losses on validation.

A set is translated in shares, each into its own log, so that several workers take part and
nothing is done twice if they are stopped; then it is scored from the logs alone.
"""

from __future__ import annotations

import dataclasses
import json
import lzma
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import simultan
from simultan import atomic, checkpoint
from simultan.data.sources import read_lines
from simultan.evaluation.evaluate import translate_set
from simultan.evaluation.instances import Instance, read_log, write_log
from simultan.evaluation.scores import score
from simultan.evaluation.scoring import Scoring
from simultan.streaming.decoding import THRESHOLD, Decoding
from simultan.train.validation import teacher_forced

__all__ = [
    "Losses",
    "Measured",
    "Score",
    "Share",
    "all_scores",
    "read_predictions",
    "write_predictions",
]

LEFT_OUT = {"system", "words_per_second", "al_ca", "chrf_signature"}
LEFT_OUT |= {"seconds_per_source_word", "seconds_per_target_word"}  # of a machine doing more


@dataclass(frozen=True)
class Share:
    """Translate every `count`-th sentence of a set, as it would be spoken, into a log."""

    log: Path
    model: Path
    corpus: Path
    split: str
    decoding: Decoding = field(default_factory=Decoding)
    sentences: int = 0  # of the set, evenly through it; 0: all
    index: int = 0  # this is the share that begins with this sentence
    count: int = 1
    quantize: str | None = None

    def __call__(self, device: str) -> None:
        if self.log.exists():
            return
        sources, references = (
            list(read_lines(self.corpus / f"{self.split}.{side}.txt"))
            for side in ("source", "target")
        )
        model = simultan.load(self.model, device=device, quantize=self.quantize)
        decoding = self.decoding
        if decoding == Decoding() and model.model.policy.learned:  # as the paper streams
            decoding = Decoding(threshold=THRESHOLD)
        every = max(1, len(sources) // (self.sentences or len(sources)))
        chosen = list(range(0, len(sources), every))[self.index :: self.count]
        instances = translate_set(
            model,
            [sources[i] for i in chosen],
            [references[i] for i in chosen],
            rows=128 if device == "cpu" else 512,
            decoding=decoding,
        )
        pairs = zip(chosen, instances, strict=True)
        write_log(self.log, [dataclasses.replace(i, index=index) for index, i in pairs])


@dataclass(frozen=True)
class Measured:
    """The scores of a set, and its translations as a compressed file."""

    scores: dict[str, float | str | None]
    predictions: bytes
    heads: dict[str, list[list[float]]]  # what each head does, by layer; empty: no heads


@dataclass(frozen=True)
class Score:
    """Score a set from the logs of its shares."""

    logs: tuple[Path, ...]
    tokenized: bool = True
    subwords: bool = False  # latency in subwords, too

    def __call__(self, device: str) -> Measured:
        instances = [instance for log in self.logs for instance in read_log(log)]
        instances.sort(key=lambda instance: instance.index)
        scores = all_scores(instances, self.tokenized, self.subwords)
        return Measured(scores, _packed(instances, self.subwords), head_habits(instances))


def all_scores(
    instances: Sequence[Instance], tokenized: bool, subwords: bool
) -> dict[str, float | str | None]:
    """What a result keeps of a set: al is AL in words, al_subwords the same in subwords."""
    flat = score(instances, Scoring(tokenized=tokenized)).flat()
    kept = {key: value for key, value in flat.items() if key not in LEFT_OUT}
    if subwords:
        latencies = score(instances, Scoring(tokenized=tokenized, latency_unit="subwords")).latency
        kept |= {f"{name}_subwords": value for name, value in latencies.items()}
    return kept


def read_predictions(path: Path) -> list[Instance]:
    """What write_predictions wrote: the counts of subwords stand for their texts."""
    counts = {}
    for line in read_lines(path):
        table = json.loads(line)
        counts[table["index"]] = table.get("source_subwords")
    return [
        instance
        if counts[instance.index] is None
        else dataclasses.replace(instance, source_tokens=[""] * counts[instance.index])
        for instance in read_log(path)
    ]


@dataclass(frozen=True)
class Losses:
    """NLL per token, L_avg and L_var per sentence of the validation set, teacher-forced.

    Of a policy that learns once more with the stops of a stream: nll_hard and so on.
    """

    model: Path
    corpus: Path
    sentences: int = 0  # about so many; 0: all

    def __call__(self, device: str) -> dict[str, float]:
        model, config, _ = checkpoint.load_model(self.model, device)
        found = teacher_forced(model, config.loss, self.corpus, self.sentences)
        if model.policy.learned:
            model.decided = True
            hard = teacher_forced(model, config.loss, self.corpus, self.sentences)
            found |= {f"{name}_hard": value for name, value in hard.items()}
        return found


def head_habits(instances: Sequence[Instance]) -> dict[str, list[list[float]]]:
    """Of each layer and head, over all target tokens: how far and how often it is behind.

    `behind`: source tokens to the head that is furthest; `leads`: share of tokens at which no head
    is further; `still`: share of tokens at which it has not moved since the token before.
    """
    found: dict[str, Tensor] = {}
    count = moves = 0
    for instance in instances:
        if not instance.token_heads:
            continue
        heads = torch.tensor(instance.token_heads, dtype=torch.float64)  # [T, L, H]
        behind = heads.amax((1, 2), keepdim=True) - heads
        sums = {"behind": behind, "leads": (behind == 0).double(), "still": heads.diff(dim=0) == 0}
        for name, value in sums.items():
            found[name] = found.get(name, torch.zeros(())) + value.double().sum(0)
        count, moves = count + len(heads), moves + len(heads) - 1
    if not moves:  # one token each
        found.pop("still", None)
    means = {name: sums / (moves if name == "still" else count) for name, sums in found.items()}
    return {
        name: [[round(value, 3) for value in row] for row in mean.tolist()]
        for name, mean in means.items()
    }


def write_predictions(path: Path, packed: bytes) -> None:
    """Write what a Score packed: a log that `simultan score` reads, without text of the corpus.

    `spans`: for each target token, the distance between the first and the last head;
    `token_delays`, `source_subwords` and `reference_tokens`, where latency counts subwords, are
    delays and lengths in them; `guesses`: whether each guess of an agent was right.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic.place(path) as partial:
        partial.write_bytes(packed)


def _packed(instances: Sequence[Instance], subwords: bool) -> bytes:
    def line(instance: Instance) -> str:
        table: dict[str, Any] = {
            "index": instance.index,
            "prediction": instance.prediction,
            "delays": instance.delays,
        }
        if subwords:
            table["token_delays"] = instance.token_delays
            table["source_subwords"] = len(instance.source_tokens or ())
            table["reference_tokens"] = instance.reference_tokens
        if instance.token_heads:
            positions = torch.tensor(instance.token_heads).flatten(1)  # [T, L H]
            table["spans"] = (positions.amax(1) - positions.amin(1)).tolist()
        if instance.guesses:
            table["guesses"] = instance.guesses
        return json.dumps(table, ensure_ascii=False)

    lines = (line(instance) for instance in instances)
    return lzma.compress("".join(line + "\n" for line in lines).encode(), preset=6)
