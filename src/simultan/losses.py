"""The training objective: L = NLL per token + lambda_avg L_avg + lambda_var L_var [+ rdrop D].

With scale "sentence" it is the paper's: NLL per sentence + lambda_avg L_avg + lambda_var L_var. All
of that is divided by the mean number of target tokens of a sentence, so that NLL keeps its size.

L_avg is DAL(g^W) with g_i^W = sum_lh softmax_lh(g_i^lh) g_i^lh, one per sentence. L_var is the
variance of g_i^lh over layers and heads, averaged over the target tokens of a sentence. Both are
averaged over sentences; with a grade, L_avg of a sentence counts exp(grade shift) times. D is
R-Drop's divergence per token: the same sentences pass twice, with other dropout, and all other
terms are means over both passes. Every function returns sums, so that processes and accumulated
batches add up exactly before they are divided by what they count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from simultan.config import LossConfig
from simultan.data.batching import Batch
from simultan.latency import differentiable_average_lagging
from simultan.ops import cross_entropy

CHUNK_ROWS = 2048  # target tokens whose logits are in memory at once, in eager code


class Output(Protocol):
    """What a model returns for a batch; see model.ModelOutput."""

    @property
    def hidden(self) -> Tensor: ...  # [B, T, D]

    @property
    def delays(self) -> Tensor | None: ...  # [B, L, H, T]

    @property
    def hard(self) -> Tensor | None: ...  # [B] rows with the stops of a stream

    @property
    def shift(self) -> Tensor | None: ...  # [B] of the energies


class Translator(Protocol):
    """What the losses ask of a model."""

    def __call__(self, batch: Batch) -> Output: ...

    def project(self, hidden: Tensor) -> Tensor: ...


class LossTerms(NamedTuple):
    """Sums over a batch, 0-d. It is a tuple, so that sharded modules find its tensors."""

    nll: Tensor  # over target tokens, without label smoothing
    smooth: Tensor  # over target tokens, label smoothed
    divergence: Tensor  # over target tokens, of two passes
    latency_average: Tensor  # over sentences
    latency_variance: Tensor  # over sentences
    tokens: Tensor
    sentences: Tensor


def _row_losses(model: Translator, hidden: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """NLL, smoothed NLL and divergence of each row [3, N] of one or two passes [P, N, D]."""
    passes, count, _ = hidden.shape
    logits = model.project(hidden.flatten(0, 1))  # [P N, V]
    entropy = cross_entropy(logits, target.repeat(passes), smoothing)
    entropy = entropy.unflatten(1, (passes, count)).mean(1)
    if passes == 1:
        return torch.cat([entropy, torch.zeros_like(entropy[:1])])
    return torch.cat([entropy, divergence(*logits.unflatten(0, (passes, count)))[None]])


def divergence(one: Tensor, other: Tensor) -> Tensor:
    """The mean of KL(p, q) and KL(q, p) of two logits [N, V]: sum of (p - q) log(p / q) / 2."""
    kind = torch.promote_types(one.dtype, torch.float32)
    p, q = one.to(kind).log_softmax(-1), other.to(kind).log_softmax(-1)
    return 0.5 * ((p.exp() - q.exp()) * (p - q)).sum(-1)


def target_losses(
    model: Translator, hidden: Tensor, target: Tensor, mask: Tensor, smoothing: float
) -> Tensor:
    """Sums over kept tokens [3]: NLL, lse - (1-eps) logit[target] - eps mean(logits), divergence.

    hidden [P B, T, D] of P passes, target [B, T], mask [B, T] True = keep. On a GPU, kernels and
    the compiler keep no float32 copy of the logits for the backward pass. Eager code on a CPU
    would keep one, so there the rows are taken in chunks, which are computed again.
    """
    if hidden.shape[1] != target.shape[1] or mask.shape != target.shape:
        raise ValueError(
            f"hidden {tuple(hidden.shape)}, target {tuple(target.shape)}, mask {tuple(mask.shape)}:"
            " [P B, T, D] and twice [B, T] wanted"
        )
    labels = target.flatten()
    passes = _passes(len(hidden), len(target))
    rows = hidden.unflatten(0, (passes, len(target))).flatten(1, 2)  # [P, B T, D]
    if torch.compiler.is_compiling() or hidden.is_cuda or len(labels) <= CHUNK_ROWS:
        losses = _row_losses(model, rows, labels, smoothing)
    else:
        pieces = zip(torch.split(rows, CHUNK_ROWS, 1), torch.split(labels, CHUNK_ROWS), strict=True)
        losses = torch.cat(
            [
                checkpoint(_row_losses, model, piece, label, smoothing, use_reentrant=False)
                for piece, label in pieces
            ],
            dim=1,
        )
    return torch.where(mask.flatten(), losses, 0.0).sum(-1)


def weighted_average_latency(
    delays: Tensor, source_lengths: Tensor, target_lengths: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Sum over sentences of L_avg; delays [B, L, H, T] counted in source tokens from 1.

    With `weights` [B], each sentence counts so many times.
    """
    flat = delays.flatten(1, 2)  # [B, L H, T]
    weighted = (flat.softmax(1) * flat).sum(1)  # [B, T]: per target token, before any metric
    lags = differentiable_average_lagging(weighted, source_lengths, target_lengths)
    return lags.sum() if weights is None else (weights * lags).sum()


def head_variance(delays: Tensor, target_lengths: Tensor) -> Tensor:
    """Sum over sentences of L_var; delays [B, L, H, T]."""
    variance = delays.flatten(1, 2).var(1, correction=0)  # [B, T]
    keep = _keep(target_lengths, variance.shape[1])
    return (torch.where(keep, variance, 0.0).sum(1) / target_lengths.clamp(min=1)).sum()


def _passes(rows: int, sentences: int) -> int:
    """1 or 2, of which `rows` are the result. Lengths are compared and not divided: then one symbol
    stands for both while code is compiled, where a quotient would be in every later shape."""
    if rows == sentences:
        return 1
    if rows == 2 * sentences:
        return 2
    raise ValueError(f"{rows} rows of {sentences} sentences: one or two passes are wanted")


def _keep(lengths: Tensor, size: int) -> Tensor:
    return torch.arange(size, device=lengths.device) < lengths[:, None]  # [B, T]


def measure(
    model: Translator,
    hidden: Tensor,
    delays: Tensor | None,
    hard: Tensor | None,
    shift: Tensor | None,
    batch: Batch,
    config: LossConfig,
) -> LossTerms:
    """The terms of a model's output, which may be that of twice(batch).

    A policy without expected delays has no latency terms.
    """
    keep = _keep(batch.target_lengths, batch.target.shape[1])
    smoothing = config.label_smoothing
    nll, smooth, apart = target_losses(model, hidden, batch.target, keep, smoothing).unbind()
    average = variance = torch.zeros_like(nll)
    if delays is not None:
        passes = len(delays) // len(keep)
        # Padding first: what it holds must not reach a gradient.
        delays = torch.where(keep.repeat(passes, 1)[:, None, None], delays, 0.0)
        source, target = (
            lengths.repeat(passes) for lengths in (batch.source_lengths, batch.target_lengths)
        )
        if config.on_hard and hard is not None:
            delays = torch.where(hard[:, None, None, None], delays, 0.0)
            real, target = target > 0, torch.where(hard, target, 0)
        grades = None
        if config.lambda_grade and shift is not None:
            grades = (config.lambda_grade * shift).exp()
        average = weighted_average_latency(delays, source, target, grades) / passes
        variance = head_variance(delays, target) / passes
        if config.on_hard and hard is not None:
            # The mean over the hard rows counts for all rows.
            share = real.sum() / (target > 0).sum().clamp(min=1)
            average, variance = average * share, variance * share
    tokens, sentences = counts(batch)
    return LossTerms(nll, smooth, apart, average, variance, tokens, sentences)


def terms(
    model: Translator,
    batch: Batch,
    config: LossConfig,
    measure: Callable[..., LossTerms] = measure,  # or the same, compiled
) -> LossTerms:
    """All terms of one batch."""
    output = model(twice(batch) if config.rdrop else batch)
    return measure(model, output.hidden, output.delays, output.hard, output.shift, batch, config)


def twice(batch: Batch) -> Batch:
    """The same sentences for two passes at once."""
    return Batch(*(torch.cat([tensor, tensor]) for tensor in batch))


def counts(batch: Batch) -> tuple[Tensor, Tensor]:
    """The target tokens and sentences of a batch, 0-d. A row of length 0 is padding."""
    return batch.target_lengths.sum(), (batch.target_lengths > 0).sum()


def latency_weights(config: LossConfig, update: int | None = None) -> tuple[float, float]:
    """lambda_avg and lambda_var at an update, counted from 1; None means after the ramp."""
    rise = min(1.0, update / config.ramp) if config.ramp and update is not None else 1.0
    return rise * config.lambda_avg, rise * config.lambda_var


def total(
    sums: LossTerms,
    tokens: Tensor,
    sentences: Tensor,
    config: LossConfig,
    weights: Sequence[float | Tensor] | Tensor | None = None,
) -> Tensor:
    """The objective, given how many tokens and sentences the whole update holds.

    `weights` are those of latency_weights(), by default those after the ramp.
    """
    average, variance = latency_weights(config) if weights is None else weights
    latency = average * sums.latency_average + variance * sums.latency_variance
    counted = tokens if config.scale == "sentence" else sentences
    return (sums.smooth + config.rdrop * sums.divergence) / tokens + latency / counted
