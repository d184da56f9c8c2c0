"""A test set through a translator: first `instances.log`, then `scores.json` from the log alone."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch

from simultan import latency
from simultan.data.codec import Codec
from simultan.evaluation.instances import Instance, write_log
from simultan.evaluation.scores import WORDS_PER_SECOND, LatencyUnit, Scores, score, write_scores

__all__ = ["Translation", "Translator", "evaluate", "translate_set"]


class Translation(Protocol):
    """What evaluation asks of a translated sentence."""

    words: list[str]
    delays: list[int]  # source words read, for each word
    elapsed: list[float]  # seconds of computing since the sentence began, for each word
    tokens: list[int]  # target pieces, without end-of-sequence
    token_delays: list[int]  # source pieces read, for each target piece
    heads: list[list[list[int]]]  # [T, L, H], from 1; empty where the policy has no heads


class Translator(Protocol):
    """What evaluation asks of a translator."""

    codec: Codec

    def translate(
        self,
        sentences: Sequence[str],
        *,
        rows: int = 32,
        threshold: float = 0.5,
        k: int | None = None,
        rule: str | None = None,
        beam: int = 1,
        progress: Callable[[int], None] | None = None,
    ) -> Sequence[Translation]:
        """Translate all; `progress` is told how many more sentences are done."""
        ...


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    out: str | Path | None = None,
    *,
    rows: int = 32,
    threshold: float = 0.5,
    k: int | None = None,
    rule: str | None = None,
    beam: int = 1,
    tokenized: bool = False,
    latency_unit: LatencyUnit = "words",
    words_per_second: float = WORDS_PER_SECOND,
    system: str = "",
    progress: Callable[[int], None] | None = None,
) -> Scores:
    """Translate and score a test set; with `out`, leave instances.log and scores.json there."""
    instances = translate_set(
        translator,
        sources,
        references,
        rows=rows,
        threshold=threshold,
        k=k,
        rule=rule,
        beam=beam,
        words_per_second=words_per_second,
        progress=progress,
    )
    if out is not None:
        write_log(Path(out) / "instances.log", instances)
    scores = score(
        instances,
        tokenized=tokenized,
        latency_unit=latency_unit,
        words_per_second=words_per_second,
        system=system,
    )
    if out is not None:
        write_scores(Path(out) / "scores.json", scores)
    return scores


def translate_set(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    rows: int = 32,
    threshold: float = 0.5,
    k: int | None = None,
    rule: str | None = None,
    beam: int = 1,
    words_per_second: float = WORDS_PER_SECOND,
    progress: Callable[[int], None] | None = None,
) -> list[Instance]:
    """Translate a test set: the sentences of its log."""
    if len(sources) != len(references):
        raise ValueError(
            f"{len(sources)} source lines against {len(references)} reference lines: "
            "they must be the two sides of one test set"
        )
    if not sources:
        raise ValueError("the test set is empty")
    start = time.perf_counter()
    translations = translator.translate(
        sources, rows=rows, threshold=threshold, k=k, rule=rule, beam=beam, progress=progress
    )
    seconds = time.perf_counter() - start
    instances = [
        _instance(index, translation, source, reference, translator.codec, words_per_second)
        for index, (translation, source, reference) in enumerate(
            zip(translations, sources, references, strict=True)
        )
    ]
    # a run's time cannot be told apart by sentence: each takes its share by words
    lengths = [len(i.delays) + (i.source_length or 0) + 1 for i in instances]
    return [
        dataclasses.replace(instance, seconds=seconds * length / sum(lengths))
        for instance, length in zip(instances, lengths, strict=True)
    ]


def _instance(
    index: int,
    translation: Translation,
    source: str,
    reference: str,
    codec: Codec,
    words_per_second: float,
) -> Instance:
    delays = torch.tensor(translation.delays, dtype=torch.float64)
    computing = torch.tensor(translation.elapsed, dtype=torch.float64)
    times = latency.emission_times(delays, computing, words_per_second)
    words = codec.pipeline.split_source(source)
    return Instance(
        index=index,
        prediction=" ".join(translation.words),
        delays=list(translation.delays),
        elapsed=[round(t, 4) for t in times.tolist()],
        prediction_length=len(translation.words),
        reference=reference,
        source=" ".join(words),
        source_length=len(words),
        computing=[round(c, 6) for c in translation.elapsed],
        source_tokens=[
            codec.source_vocabulary.pieces[id] for id in codec.encode_source(source)[:-1]
        ],
        target_tokens=[codec.target_vocabulary.pieces[id] for id in translation.tokens],
        reference_tokens=len(codec.encode_target(reference)) - 1,
        token_delays=list(translation.token_delays),
        heads=list(translation.heads) or None,
    )
