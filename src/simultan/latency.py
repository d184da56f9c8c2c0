"""Latency of simultaneous translation as functions of delays and lengths.

With delays g_1..g_H (source words read before target word i), X source words, Y reference words
and step r = X/Y, the definitions are those of SimulEval 1.1.4 for text:

    AP   = sum_i g_i / (X Y)
    AL   = mean over i <= tau of g_i - (i-1) r,  tau = first i with g_i >= X (else H)
    LAAL = AL with r = X / max(H, Y)
    DAL  = mean_i of max_{k <= i} (g_k - (k-1) X/H)
    ATD  = mean_i of T_i - s_i,  T_i = max(g_i, T_{i-1}) + 1,
           s_i = min(g_i, i - max(0, words written - words read before i's chunk))

Delays are [..., T] and lengths [...]: every leading dimension is a row. What lies past a row's
length is never looked at, whatever it holds, and gets no gradient. A row that wrote nothing is 0;
its mean over a corpus is the caller's to leave out. Gradients flow through the delays.

`METRICS` lists them all. Scores, figures, tables, recipes and the training log take their metrics
from it, so a new metric is a function and one entry there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = [
    "METRICS",
    "Metric",
    "average_attention_span",
    "average_lagging",
    "average_proportion",
    "average_token_delay",
    "differentiable_average_lagging",
    "emission_times",
    "find_metric",
    "length_adaptive_average_lagging",
]


def average_proportion(
    delays: Tensor,
    source_lengths: Tensor,
    target_lengths: Tensor,
    reference_lengths: Tensor | None = None,
) -> Tensor:
    """AP: the share of the source that was read, averaged over target words. [..., T] -> [...]."""
    delays, _, _ = _rows(delays, target_lengths)
    reference_lengths = target_lengths if reference_lengths is None else reference_lengths
    area = source_lengths.to(delays) * reference_lengths.to(delays)
    return delays.sum(-1) / area.clamp(min=1)


def average_lagging(
    delays: Tensor,
    source_lengths: Tensor,
    target_lengths: Tensor,
    reference_lengths: Tensor | None = None,
    *,
    times: Tensor | None = None,
) -> Tensor:
    """AL: words behind an ideal writer of the reference's length. [..., T] -> [...].

    `times` [..., T], when the words came out in source words, takes the place of the delays: AL
    with computing time. tau stays that of the delays: a slow machine does not shorten what is
    averaged over.
    """
    reference_lengths = target_lengths if reference_lengths is None else reference_lengths
    delays, mask, index = _rows(delays, target_lengths)
    source = source_lengths.to(delays)[..., None]
    step = source / reference_lengths.to(delays).clamp(min=1)[..., None]
    ended = delays >= source
    mask = mask & (ended.cumsum(-1) - ended.long() == 0)  # up to tau: nothing ended before i
    lag = torch.where(mask, (delays if times is None else times) - index * step, 0.0)
    return lag.sum(-1) / mask.sum(-1).clamp(min=1)


def length_adaptive_average_lagging(
    delays: Tensor,
    source_lengths: Tensor,
    target_lengths: Tensor,
    reference_lengths: Tensor | None = None,
) -> Tensor:
    """LAAL: AL that an over-long output cannot lower. [..., T] -> [...]."""
    longer = target_lengths
    if reference_lengths is not None:
        longer = torch.maximum(target_lengths, reference_lengths.to(target_lengths))
    return average_lagging(delays, source_lengths, target_lengths, longer)


def emission_times(delays: Tensor, computing: Tensor, words_per_second: float) -> Tensor:
    """When each word came out, in source words, if the source speaks at a steady rate v.

    Source word j is heard at j/v seconds; the computing that leads to target word i begins when
    the last source word it needs is heard and word i-1 is out, and takes c_i - c_{i-1} seconds,
    `computing` c [..., T] being the computing time since the sentence began:

        t_i = max(g_i / v, t_{i-1}) + c_i - c_{i-1}  =  c_i + max_{k <= i} (g_k / v - c_{k-1})
    """
    before = torch.cat([torch.zeros_like(computing[..., :1]), computing[..., :-1]], -1)
    waits = (delays / words_per_second - before).cummax(-1).values
    return (waits + computing) * words_per_second


def differentiable_average_lagging(
    delays: Tensor,
    source_lengths: Tensor,
    target_lengths: Tensor,
    reference_lengths: Tensor | None = None,
) -> Tensor:
    """DAL: lagging in which every written word costs its time. [..., T] -> [...].

    The reference's length has no part in it; the argument is there so that every metric is
    called alike.
    """
    delays, mask, index = _rows(delays, target_lengths)
    count = target_lengths.to(delays).clamp(min=1)
    step = (source_lengths.to(delays) / count)[..., None]
    # g'_i = max(g_i, g'_{i-1} + step): subtract (i-1) step and the recurrence is a running maximum
    lag = (delays - index * step).cummax(-1).values
    return torch.where(mask, lag, 0.0).sum(-1) / count


def average_token_delay(
    delays: Tensor,
    source_lengths: Tensor,
    target_lengths: Tensor,
    reference_lengths: Tensor | None = None,
) -> Tensor:
    """ATD: end of each target word minus end of the source word it stands beside.

    Source and target words last one unit each; words written at one delay are a chunk, and word
    i stands beside source word i, less what was written ahead of the reading before its chunk.
    Neither the source's nor the reference's length has a part in it. [..., T] -> [...].
    """
    delays, mask, index = _rows(delays, target_lengths)
    # T_i = max(g_i, T_{i-1}) + 1, as a running maximum
    end = (delays - index).cummax(-1).values + index + 1
    previous = torch.cat([torch.zeros_like(delays[..., :1]), delays[..., :-1]], -1)
    starts = delays != previous
    starts[..., :1] = True
    written = torch.where(starts, index.expand_as(delays), 0).cummax(-1).values  # before the chunk
    read = previous.gather(-1, written.long())  # when the chunk before it was written
    beside = torch.minimum(index + 1 - (written - read).clamp(min=0), delays)
    count = target_lengths.to(delays).clamp(min=1)
    return torch.where(mask, end - beside, 0.0).sum(-1) / count


@dataclass(frozen=True)
class Metric:
    """One entry of the table: how to compute a metric and how to show it."""

    compute: Callable[..., Tensor]  # of delays [..., T] and three lengths [...] -> [...]
    label: str  # its full name
    counts_words: bool = True  # its unit is a word (or a subword); else it is a share
    text_only: bool = False  # makes no sense for a source that is measured in milliseconds
    decimals: int = 2  # in tables

    def axis(self, unit: str = "words") -> str:
        """The label of an axis, with its unit."""
        return f"{self.label} ({unit})" if self.counts_words else self.label


# The key is the metric's name in scores.json; in capitals it is its name in logs and recipes.
METRICS: dict[str, Metric] = {
    "ap": Metric(average_proportion, "Average Proportion", counts_words=False, decimals=3),
    "al": Metric(average_lagging, "Average Lagging"),
    "laal": Metric(length_adaptive_average_lagging, "Length-Adaptive Average Lagging"),
    "dal": Metric(differentiable_average_lagging, "Differentiable Average Lagging"),
    "atd": Metric(average_token_delay, "Average Token Delay", text_only=True),
}


def find_metric(name: str) -> Metric:
    """The metric of this name, in capitals or not."""
    if name.lower() not in METRICS:
        known = ", ".join(key.upper() for key in METRICS)
        raise ValueError(f"{name!r} is not a latency metric: choose one of {known}")
    return METRICS[name.lower()]


def average_attention_span(positions: Tensor, target_lengths: Tensor) -> Tensor:
    """Slowest minus fastest head, averaged over target tokens: [..., L, H, T] -> [...]."""
    highest, lowest = positions.amax((-3, -2)), positions.amin((-3, -2))
    span, _, _ = _rows(highest - lowest, target_lengths)
    return span.sum(-1) / target_lengths.to(span).clamp(min=1)


def _rows(delays: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Delays as floats with padding at 0, the mask [..., T] of what counts, and i - 1 [T]."""
    if not delays.is_floating_point():
        delays = delays.to(torch.get_default_dtype())
    index = torch.arange(delays.shape[-1], device=delays.device)
    mask = index < lengths.to(delays.device)[..., None]
    # where, not a product: padding may hold anything, and 0 * nan is nan
    return torch.where(mask, delays, 0.0), mask, index.to(delays.dtype)
