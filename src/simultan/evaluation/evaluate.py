"""Translate a test set into `instances.log`, then score that log into `scores.json`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from simultan import latency
from simultan.data.codec import Codec
from simultan.evaluation.instances import Instance, read_log, write_log
from simultan.evaluation.scores import Scores, score, write_scores
from simultan.evaluation.scoring import Scoring
from simultan.streaming.decoding import DEFAULT, Decoding
from simultan.streaming.translator import Translation, Translator

__all__ = ["check_sides", "evaluate", "translate_set"]


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    out: str | Path | None = None,
    decoding: Decoding | str = DEFAULT,
    scoring: Scoring = Scoring(),
    *,
    rows: int = 32,
    progress: Callable[[int], None] | None = None,
) -> Scores:
    """Translate and score a test set; with `out`, write instances.log and scores.json there."""
    language = scoring.language or translator.codec.target_language
    scoring = dataclasses.replace(scoring, language=language)
    speed = scoring.words_per_second
    instances = translate_set(
        translator, sources, references, decoding, speed, rows=rows, progress=progress
    )
    if out is not None:
        write_log(Path(out) / "instances.log", instances)
        instances = read_log(out)
    scores = score(instances, scoring)
    if out is not None:
        write_scores(Path(out) / "scores.json", scores)
    return scores


def translate_set(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    decoding: Decoding | str = DEFAULT,
    words_per_second: float = Scoring.words_per_second,
    *,
    rows: int = 32,
    progress: Callable[[int], None] | None = None,
) -> list[Instance]:
    """Translate a test set; returns the sentences of its log."""
    check_sides(sources, references)
    start = time.perf_counter()
    translations = translator.translate(sources, decoding, rows=rows, progress=progress)
    seconds = time.perf_counter() - start
    instances = [
        _instance(index, translation, source, reference, translator.codec, words_per_second)
        for index, (translation, source, reference) in enumerate(
            zip(translations, sources, references, strict=True)
        )
    ]
    # rows share their time, so each sentence gets a share of it by its words
    lengths = [len(i.delays) + (i.source_length or 0) + 1 for i in instances]
    return [
        dataclasses.replace(instance, seconds=seconds * length / sum(lengths))
        for instance, length in zip(instances, lengths, strict=True)
    ]


def check_sides(sources: Sequence[str], references: Sequence[str]) -> None:
    if len(sources) != len(references):
        raise ValueError(
            f"{len(sources)} source lines against {len(references)} reference lines: "
            "they must be the two sides of one test set"
        )
    if not sources:
        raise ValueError("the test set is empty")


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
    words = codec.split_source(source)
    return Instance(
        index=index,
        prediction=translation.text,
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
        token_heads=list(translation.token_heads) or None,
        guesses=translation.guesses or None,
    )
