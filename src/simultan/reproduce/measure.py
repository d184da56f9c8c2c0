"""What is measured of a trained model: quality and latency of a set, losses on validation.

These run in worker processes, on one thread each, while the device goes on training.
"""

from __future__ import annotations

import dataclasses
import json
import lzma
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

import simultan
from simultan import checkpoint, losses
from simultan.config import DataConfig
from simultan.data.batching import Batches, Corpus
from simultan.evaluation.evaluate import translate_set
from simultan.evaluation.instances import Instance, read_lines
from simultan.evaluation.scores import score
from simultan.model import memory
from simultan.reproduce.plan import Point

__all__ = ["Measured", "Task", "measure_losses", "measure_set", "start_worker", "write_predictions"]

LEFT_OUT = {"system", "words_per_second", "al_ca", "chrf_signature"}
LEFT_OUT |= {"seconds_per_source_word", "seconds_per_target_word"}  # of a machine doing more


@dataclass(frozen=True)
class Task:
    """A model, a prepared corpus, and how to translate."""

    model: Path
    corpus: Path
    split: str
    point: Point = field(default_factory=Point)
    tokenized: bool = True
    sentences: int = 0  # evenly through the set; 0: all of them
    rows: int = 64
    device: str = "cpu"


@dataclass(frozen=True)
class Measured:
    """The scores of a set, the time they took, and its translations as a compressed file."""

    scores: dict[str, float | str | None]
    seconds: float
    predictions: bytes


def start_worker() -> None:
    """A worker leaves the device and the other cores to others."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.nice(5)
    torch.set_num_threads(1)
    memory.keep()


def measure_set(task: Task) -> Measured:
    """Translate a set as it would be spoken, and score it."""
    sources, references = (
        read_lines(task.corpus / f"{task.split}.{side}.txt") for side in ("source", "target")
    )
    every = max(1, len(sources) // (task.sentences or len(sources)))
    start = time.perf_counter()
    translator = simultan.load(task.model, device=task.device)
    instances = translate_set(
        translator,
        sources[::every],
        references[::every],
        rows=task.rows,
        threshold=task.point.threshold,
        k=task.point.k,
        rule=task.point.rule,
        beam=task.point.beam,
    )
    seconds = time.perf_counter() - start
    scores = dataclasses.asdict(score(instances, tokenized=task.tokenized))
    kept = {key: value for key, value in scores.items() if key not in LEFT_OUT}
    return Measured(kept, seconds, _packed(instances))


def measure_losses(task: Task) -> dict[str, float]:
    """NLL per token, L_avg and L_var per sentence of the validation set, teacher-forced."""
    model, config, _ = checkpoint.load_model(task.model, task.device)
    data = DataConfig(batch_tokens=4_000, max_length=256)
    corpus = Corpus(task.corpus, task.split)
    total = losses.LossTerms(*[torch.zeros(())] * len(losses.LossTerms._fields))
    with torch.inference_mode():
        for batch in Batches(corpus, data, shuffle=False, epochs=1, prefetch=0):
            terms = losses.terms(model, batch.to(task.device), config.loss)
            pairs = zip(total, terms, strict=True)
            total = losses.LossTerms(*(one + other.double().cpu() for one, other in pairs))
            if task.sentences and total.sentences >= task.sentences:
                break
    found = {"nll": float(total.nll / total.tokens)}
    if model.policy.learned:
        found["l_avg"] = float(total.latency_average / total.sentences)
        found["l_var"] = float(total.latency_variance / total.sentences)
    return found


def write_predictions(path: Path, packed: bytes) -> None:
    """Write what measure_set() packed: a log that `simultan score` reads, without any text of
    the corpus."""
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
