"""Score a log: quality, latency and computing time, from `instances.log` alone."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simultan import latency
from simultan.atomic import write_text
from simultan.data.languages import row
from simultan.data.words import split_words
from simultan.evaluation.instances import Instance
from simultan.evaluation.quality import Quality, measure
from simultan.evaluation.scoring import LatencyUnit, Scoring

__all__ = ["Scores", "score", "write_scores"]


@dataclass(frozen=True)
class Scores:
    """What a log says about a system; a value is None if the log does not have it.

    `latency` has a value for each of `latency.METRICS`: the mean over the sentences for which
    something was written, in `latency_unit`. `al_ca` is AL with computing time included
    (`latency.emission_times`), in words of a source that is spoken at `words_per_second`. `span`
    is in source pieces. The seconds are those of the whole run divided by its words. With several
    rows they measure throughput, and `al_ca` includes the time of the other rows: evaluate with
    one row to see what one listener sees.
    """

    system: str
    sentences: int
    empty: int  # sentences for which nothing was written
    bleu: float | None
    bleu_lowercased: float | None
    chrf: float | None
    length_ratio: float | None
    latency: dict[str, float | None]
    latency_unit: LatencyUnit
    span: float | None
    al_ca: float | None
    words_per_second: float
    seconds_per_source_word: float | None
    seconds_per_target_word: float | None
    bleu_signature: str | None
    bleu_lowercased_signature: str | None
    chrf_signature: str | None
    comet: float | None = None  # of `simultan score --comet`
    comet_model: str | None = None
    guesses: float | None = None  # source words that an agent guessed, per sentence
    guesses_right: float | None = None  # share of them

    def flat(self) -> dict[str, Any]:
        """All values by name, as in scores.json, where each latency metric is a key."""
        values: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            values |= value if field.name == "latency" else {field.name: value}
        return values


def score(instances: Sequence[Instance], scoring: Scoring = Scoring()) -> Scores:
    """Score a log of ours or of another tool; quality needs references in it."""
    if not instances:
        raise ValueError("no sentence to score")
    if scoring.words_per_second <= 0:
        raise ValueError(f"words per second = {scoring.words_per_second} must be above 0")
    without = [i.index for i in instances if i.reference is None]
    if without and len(without) < len(instances):
        raise ValueError(
            f"the sentence with index {without[0]} has no reference, others have: give a file of "
            "references"
        )
    measured: dict[str, Any] = dict.fromkeys(field.name for field in dataclasses.fields(Quality))
    if not without:
        references = [i.reference or "" for i in instances]
        predictions = [i.prediction for i in instances]
        quality = measure(predictions, references, scoring.tokenized, scoring.language)
        measured = dataclasses.asdict(quality)
    written = [i for i in instances if i.delays]
    with_heads = [i for i in instances if i.token_heads]
    guesses = [right for i in instances for right in i.guesses or []]
    spans = [
        latency.average_attention_span(
            torch.tensor(i.token_heads, dtype=torch.float64).permute(1, 2, 0),
            torch.tensor(len(i.token_heads or ())),
        ).item()
        for i in with_heads
    ]
    seconds = _sum([i.seconds for i in instances])
    source_words = _sum([i.source_length if isinstance(i.source, str) else None for i in instances])
    return Scores(
        system=scoring.system,
        sentences=len(instances),
        empty=len(instances) - len(written),
        latency_unit=scoring.latency_unit,
        span=sum(spans) / len(spans) if spans else None,
        al_ca=_computation_aware(written, scoring),
        words_per_second=scoring.words_per_second,
        seconds_per_source_word=_ratio(seconds, source_words),
        seconds_per_target_word=_ratio(seconds, sum(len(i.delays) for i in instances)),
        latency=_latencies(written, scoring),
        guesses=len(guesses) / len(instances) if guesses else None,
        guesses_right=_ratio(sum(guesses), len(guesses)),
        **measured,
    )


def write_scores(path: str | Path, scores: Scores) -> None:
    """Write scores.json."""
    write_text(path, json.dumps(scores.flat(), indent=2) + "\n")


def _latencies(written: Sequence[Instance], scoring: Scoring) -> dict[str, float | None]:
    """Means over the sentences for which something was written, as in SimulEval."""
    means: dict[str, float | None] = dict.fromkeys(latency.METRICS)
    if not written:
        return means
    delays, lengths = _lengths(written, scoring.latency_unit, scoring.language)
    timed = any(isinstance(i.source, list) for i in written)  # a recording, in milliseconds
    for name, metric in latency.METRICS.items():
        if not (timed and metric.text_only):
            means[name] = metric.compute(delays, *lengths).mean().item()
    return means


def _computation_aware(written: Sequence[Instance], scoring: Scoring) -> float | None:
    """AL with the logged computing times, or else with another tool's `elapsed`."""
    if not written or not any(any(i.elapsed) for i in written):
        return None
    delays, lengths = _lengths(written, "words", scoring.language)
    if all(i.computing is not None for i in written):
        computing = _padded([i.computing or [] for i in written])
        times = latency.emission_times(delays, computing, scoring.words_per_second)
    else:
        times = _padded([i.elapsed for i in written])
    return latency.average_lagging(delays, *lengths, times=times).mean().item()


def _lengths(
    written: Sequence[Instance], unit: LatencyUnit, language: str
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Delays [N, T], and the lengths of source, prediction and reference in the unit."""
    rows: list[list[float]] = []
    lengths: list[tuple[float, float, float]] = []
    source: float
    for i in written:
        if unit == "subwords":
            if i.token_delays is None or i.source_tokens is None:
                raise ValueError(
                    f"the sentence with index {i.index} has no delays of subwords: only logs of "
                    "`simultan evaluate` can be scored with --latency-unit subwords"
                )
            row, source, reference = i.token_delays, len(i.source_tokens), i.reference_tokens
        else:
            if i.source_length is None:
                raise ValueError(
                    f"the sentence with index {i.index} has no source_length: give the source text"
                )
            row, source = i.delays, i.source_length
            # words are separated by one space, as in SimulEval
            reference = None if i.reference is None else _count_words(i.reference, language)
        rows.append(row)
        lengths.append((source, len(row), len(row) if reference is None else reference))
    columns = torch.tensor(lengths, dtype=torch.float64).unbind(1)
    return _padded(rows), (columns[0], columns[1], columns[2])


def _count_words(text: str, language: str) -> int:
    """One space parts two words, as in SimulEval; a character is one in Chinese, Japanese, Thai."""
    return len(text.split(" ") if row(language).spaced else split_words(text, language))


def _padded(rows: Sequence[Sequence[float]]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row, dtype=torch.float64) for row in rows], batch_first=True
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _ratio(total: float | None, count: float | None) -> float | None:
    return total / count if total is not None and count else None
