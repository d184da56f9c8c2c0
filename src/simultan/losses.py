"""The training objective: L = NLL per token + lambda_avg L_avg + lambda_var L_var.

L_avg is DAL(g^W) with g_i^W = sum_lh softmax_lh(g_i^lh) g_i^lh, one per sentence; L_var is the
variance of g_i^lh over layers and heads, averaged over the target tokens of a sentence. Both are
averaged over sentences. Every function returns sums, so that ranks and accumulated batches add up
exactly before they are divided by what they count.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from simultan.config import LossConfig
from simultan.data.batching import Batch
from simultan.latency import differentiable_average_lagging
from simultan.ops import cross_entropy

__all__ = [
    "LossTerms",
    "Translator",
    "counts",
    "head_variance",
    "measure",
    "smoothed_cross_entropy",
    "terms",
    "total",
    "weighted_average_latency",
]

CHUNK_ROWS = 2048  # target tokens whose logits are alive at once in an eager backward pass


class Output(Protocol):
    """What a model returns for a batch."""

    @property
    def hidden(self) -> Tensor: ...  # [B, T, D]

    @property
    def delays(self) -> Tensor | None: ...  # [B, L, H, T]


class Translator(Protocol):
    """What the losses ask of a model."""

    def __call__(self, batch: Batch) -> Output: ...

    def project(self, hidden: Tensor) -> Tensor: ...


class LossTerms(NamedTuple):
    """Sums over a batch, 0-d; a tuple, so that the hooks of sharded modules find its tensors."""

    nll: Tensor  # over target tokens, without label smoothing
    smooth: Tensor  # over target tokens, label smoothed
    latency_average: Tensor  # over sentences
    latency_variance: Tensor  # over sentences
    tokens: Tensor
    sentences: Tensor


def _row_losses(model: Translator, hidden: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """NLL and smoothed NLL of each row [2, N]; float32 lives inside the reductions only."""
    return cross_entropy(model.project(hidden), target, smoothing)


def smoothed_cross_entropy(
    model: Translator, hidden: Tensor, target: Tensor, mask: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Sums over kept tokens of the NLL and of lse - (1-eps) logit[target] - eps mean(logits).

    hidden [B, T, D], target [B, T], mask [B, T] True = keep. The compiler turns the plain
    expression into two passes over the logits; eager code would keep a float32 copy of them
    for the backward pass, so there the rows go in chunks that are computed again.
    """
    rows, labels = hidden.flatten(0, 1), target.flatten()
    if torch.compiler.is_compiling() or len(rows) <= CHUNK_ROWS:
        losses = _row_losses(model, rows, labels, smoothing)
    else:
        pieces = zip(torch.split(rows, CHUNK_ROWS), torch.split(labels, CHUNK_ROWS), strict=True)
        losses = torch.cat(
            [
                checkpoint(_row_losses, model, piece, label, smoothing, use_reentrant=False)
                for piece, label in pieces
            ],
            dim=1,
        )
    nll, smooth = torch.where(mask.flatten(), losses, 0.0).sum(-1).unbind()
    return nll, smooth


def weighted_average_latency(
    delays: Tensor, source_lengths: Tensor, target_lengths: Tensor
) -> Tensor:
    """Sum over sentences of L_avg; delays [B, L, H, T] counted in source tokens from 1."""
    flat = delays.flatten(1, 2)  # [B, L H, T]
    weighted = (flat.softmax(1) * flat).sum(1)  # [B, T]: per target token, before any metric
    return differentiable_average_lagging(weighted, source_lengths, target_lengths).sum()


def head_variance(delays: Tensor, target_lengths: Tensor) -> Tensor:
    """Sum over sentences of L_var; delays [B, L, H, T]."""
    variance = delays.flatten(1, 2).var(1, correction=0)  # [B, T]
    keep = _keep(target_lengths, variance.shape[1])
    return (torch.where(keep, variance, 0.0).sum(1) / target_lengths.clamp(min=1)).sum()


def _keep(lengths: Tensor, size: int) -> Tensor:
    return torch.arange(size, device=lengths.device) < lengths[:, None]  # [B, T]


def terms(model: Translator, batch: Batch, config: LossConfig) -> LossTerms:
    """All terms of one batch."""
    output = model(batch)
    return measure(model, output.hidden, output.delays, batch, config)


def measure(
    model: Translator, hidden: Tensor, delays: Tensor | None, batch: Batch, config: LossConfig
) -> LossTerms:
    """The terms of a model's output; a policy without expected delays has no latency terms."""
    keep = _keep(batch.target_lengths, batch.target.shape[1])
    nll, smooth = smoothed_cross_entropy(model, hidden, batch.target, keep, config.label_smoothing)
    average = variance = torch.zeros_like(nll)
    if delays is not None:
        # Padding first: whatever stands there must not reach a gradient.
        delays = torch.where(keep[:, None, None], delays, 0.0)
        average = weighted_average_latency(delays, batch.source_lengths, batch.target_lengths)
        variance = head_variance(delays, batch.target_lengths)
    tokens, sentences = counts(batch)
    return LossTerms(nll, smooth, average, variance, tokens, sentences)


def counts(batch: Batch) -> tuple[Tensor, Tensor]:
    """Target tokens and sentences of a batch, 0-d; a row of length 0 is padding."""
    return batch.target_lengths.sum(), (batch.target_lengths > 0).sum()


def total(sums: LossTerms, tokens: Tensor, sentences: Tensor, config: LossConfig) -> Tensor:
    """The objective, given how many tokens and sentences the whole update holds."""
    latency = config.lambda_avg * sums.latency_average + config.lambda_var * sums.latency_variance
    return sums.smooth / tokens + latency / sentences
