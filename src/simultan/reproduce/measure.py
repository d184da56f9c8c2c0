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

import torch

import simultan
from simultan import checkpoint, losses
from simultan.config import DataConfig
from simultan.data.batching import Batches
from simultan.data.shards import Corpus
from simultan.data.sources import read_lines
from simultan.evaluation.evaluate import translate_set
from simultan.evaluation.instances import Instance, read_log, write_log
from simultan.evaluation.scores import score
from simultan.reproduce.plan import Point

__all__ = ["Losses", "Measured", "Score", "Share", "write_predictions"]

LEFT_OUT = {"system", "words_per_second", "al_ca", "chrf_signature"}
LEFT_OUT |= {"seconds_per_source_word", "seconds_per_target_word"}  # of a machine doing more


@dataclass(frozen=True)
class Share:
    """Translate every `count`-th sentence of a set, as it would be spoken, into a log."""

    log: Path
    model: Path
    corpus: Path
    split: str
    point: Point = field(default_factory=Point)
    sentences: int = 0  # of the set, evenly through it; 0: all
    index: int = 0  # this is the share that begins with this sentence
    count: int = 1

    def __call__(self, device: str) -> None:
        if self.log.exists():
            return
        sources, references = (
            list(read_lines(self.corpus / f"{self.split}.{side}.txt"))
            for side in ("source", "target")
        )
        every = max(1, len(sources) // (self.sentences or len(sources)))
        chosen = list(range(0, len(sources), every))[self.index :: self.count]
        instances = translate_set(
            simultan.load(self.model, device=device),
            [sources[i] for i in chosen],
            [references[i] for i in chosen],
            rows=32 if device == "cpu" else 512,
            decoding=self.point.decoding,
        )
        pairs = zip(chosen, instances, strict=True)
        write_log(self.log, [dataclasses.replace(i, index=index) for index, i in pairs])


@dataclass(frozen=True)
class Measured:
    """The scores of a set, and its translations as a compressed file."""

    scores: dict[str, float | str | None]
    predictions: bytes


@dataclass(frozen=True)
class Score:
    """Score a set from the logs of its shares."""

    logs: tuple[Path, ...]
    tokenized: bool = True

    def __call__(self, device: str) -> Measured:
        instances = [instance for log in self.logs for instance in read_log(log)]
        instances.sort(key=lambda instance: instance.index)
        scores = score(instances, tokenized=self.tokenized).flat()
        kept = {key: value for key, value in scores.items() if key not in LEFT_OUT}
        return Measured(kept, _packed(instances))


@dataclass(frozen=True)
class Losses:
    """NLL per token, L_avg and L_var per sentence of the validation set, teacher-forced."""

    model: Path
    corpus: Path
    sentences: int = 0  # about so many; 0: all

    def __call__(self, device: str) -> dict[str, float]:
        model, config, _ = checkpoint.load_model(self.model, device)
        # Few tokens to a batch: only a set of many batches is cut into many shapes.
        data = DataConfig(batch_tokens=800, max_length=256, length_step=4)
        batches = Batches(Corpus(self.corpus, "valid"), data, epochs=1, prefetch=0)
        once = dataclasses.replace(config.loss, rdrop=0.0)  # without dropout two passes are one
        total = losses.LossTerms(*[torch.zeros(())] * len(losses.LossTerms._fields))
        with torch.inference_mode():
            for batch in batches:
                terms = losses.terms(model, batch.to(device), once)
                pairs = zip(total, terms, strict=True)
                total = losses.LossTerms(*(one + other.double().cpu() for one, other in pairs))
                if self.sentences and total.sentences >= self.sentences:
                    break
        found = {"nll": float(total.nll / total.tokens)}
        if model.policy.learned:
            found["l_avg"] = float(total.latency_average / total.sentences)
            found["l_var"] = float(total.latency_variance / total.sentences)
        return found


def write_predictions(path: Path, packed: bytes) -> None:
    """Write what a Score packed: a log that `simultan score` reads, without text of the corpus."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(packed)
    part.replace(path)


def _packed(instances: Sequence[Instance]) -> bytes:
    lines = (
        json.dumps(
            {"index": i.index, "prediction": i.prediction, "delays": i.delays}, ensure_ascii=False
        )
        for i in instances
    )
    return lzma.compress("".join(line + "\n" for line in lines).encode(), preset=6)
