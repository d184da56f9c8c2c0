"""The operations attention under a policy stands on, each exact and differentiable.

expected_alignment: where a head is expected to stop,
    q[i,j] = (1 - p[i,j-1]) q[i,j-1] + alpha[i-1,j],   alpha[i,j] = p[i,j] q[i,j];
expected_attention: the soft attention behind that stop,
    beta[i,j] = sum_{k=j}^{j+w-1} alpha[i,k] exp(u[i,j]) / sum_{l=k-w+1}^{k} exp(u[i,l]);
masked_attention: the usual attention, up to a stop that is known,
    O[i] = sum_{j <= stop[i]} softmax_j(Q[i] K[j] / sqrt(D)) V[j];
cross_entropy: what a row of logits says of its target y, and the same with smoothed labels,
    lse(x) - x[y],   lse(x) - (1 - eps) x[y] - eps mean(x).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from simultan.ops import cpu

__all__ = [
    "Backend",
    "cross_entropy",
    "expected_alignment",
    "expected_attention",
    "masked_attention",
]

Backend = Literal["auto", "reference", "triton"]


def expected_alignment(
    p_choose: Tensor, source_lengths: Tensor, *, backend: Backend = "auto"
) -> Tensor:
    """The probability that target token i stops at source token j.

    p_choose [B, H, T, S], source_lengths [B] -> alpha [B, H, T, S]. Row i starts from row
    i - 1, row 0 from the first token; positions at or past a length get exactly 0. Half
    precision comes back as float32, in which it is computed; float64 stays float64.
    """
    _check("p_choose", p_choose, source_lengths)
    if _use_triton(p_choose, backend):
        from simultan.ops.alignment_triton import expected_alignment as align
    else:
        align = cpu.expected_alignment
    return align(_single(p_choose), source_lengths)


def expected_attention(
    alpha: Tensor,
    energy: Tensor,
    source_lengths: Tensor,
    *,
    lookback: int | None = None,
    backend: Backend = "auto",
) -> Tensor:
    """The expected softmax over the `lookback` tokens that end where the head stops.

    alpha, energy [B, H, T, S], source_lengths [B] -> beta [B, H, T, S]. `lookback` 1 is hard
    attention (beta = alpha), w is MoChA's chunk, None looks back to the first token.
    """
    _check("alpha", alpha, source_lengths)
    _check("energy", energy, source_lengths)
    if alpha.shape != energy.shape:
        raise ValueError(
            f"alpha {tuple(alpha.shape)} and energy {tuple(energy.shape)} must have one shape"
        )
    if lookback is not None and lookback < 1:
        raise ValueError(f"lookback = {lookback}: it must be at least 1, or None for all")
    if lookback is not None and lookback >= alpha.shape[-1]:
        lookback = None  # a window as long as the source is the whole source
    if _use_triton(alpha, backend):
        from simultan.ops.lookback_triton import expected_attention as attend
    else:
        attend = cpu.expected_attention
    return attend(_single(alpha), _single(energy), source_lengths, lookback)


def masked_attention(
    q: Tensor, k: Tensor, v: Tensor, stops: Tensor | None, *, backend: Backend = "auto"
) -> Tensor:
    """Softmax attention in which query i of row b sees the keys j <= stops[b, i].

    q [B, H, T, D], k and v [B, H, S, D], stops [B, T] or [B, 1] -> [B, H, T, D]; None is causal
    self-attention, j <= i. A query that sees nothing gets 0. On a GPU "auto" gives short
    sequences (T and S up to 64, D = 16, 32, 64 or 128) to a kernel made for them and the others
    to PyTorch's attention, behind one operation: torch.compile sees the same graph for both.
    """
    q, k, v = (_autocast(x) for x in (q, k, v))
    _check_attention(q, k, v, stops)
    if not _use_triton(q, backend):
        return cpu.masked_attention(q, k, v, stops)
    from simultan.ops.attention_triton import fits
    from simultan.ops.attention_triton import masked_attention as attend

    if backend == "triton" and not fits(q, k):
        raise ValueError(
            f"queries {tuple(q.shape)} and keys {tuple(k.shape)} in {q.dtype}: the kernel"
            " takes at most 64 tokens, heads of 16, 32, 64 or 128 and no float64;"
            " backend 'auto' takes any"
        )
    return attend(q, k, v, stops)


def cross_entropy(
    logits: Tensor, target: Tensor, smoothing: float, *, backend: Backend = "auto"
) -> Tensor:
    """NLL and smoothed NLL of each row [2, N], float32 or wider.

    logits [N, V] in any precision, target [N]; no float32 copy of the logits is made on a GPU.
    """
    if logits.dim() != 2 or target.shape != logits.shape[:1]:
        raise ValueError(
            f"logits {tuple(logits.shape)} and target {tuple(target.shape)}: [N, V] and [N] wanted"
        )
    # float64 is for checking gradients: the kernel works in float32
    if not _use_triton(logits, backend) or (backend == "auto" and logits.dtype == torch.float64):
        return cpu.cross_entropy(logits, target, smoothing)
    from simultan.ops.entropy_triton import cross_entropy as entropy

    return entropy(logits, target, smoothing)


def _autocast(x: Tensor) -> Tensor:
    """What PyTorch's own attention does to its inputs under autocast."""
    if x.dtype == torch.float64 or not torch.is_autocast_enabled(x.device.type):
        return x
    return x.to(torch.get_autocast_dtype(x.device.type))


def _single(x: Tensor) -> Tensor:
    """float32 inside, whatever comes in; float64 stays float64."""
    return x if x.dtype == torch.float64 else x.float()


def _use_triton(x: Tensor, backend: Backend) -> bool:
    if backend not in ("auto", "reference", "triton"):
        raise ValueError(f"backend = {backend!r}: choose 'auto', 'reference' or 'triton'")
    return backend == "triton" or (backend == "auto" and x.is_cuda)


def _check(name: str, x: Tensor, source_lengths: Tensor) -> None:
    """Shapes, dtypes and devices only: looking at values would wait for the device."""
    if x.dim() != 4 or 0 in x.shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)}: [B, H, T, S], none of them 0, wanted")
    if not x.dtype.is_floating_point:
        raise ValueError(f"{name} is {x.dtype}: a floating-point tensor is wanted")
    if source_lengths.shape != x.shape[:1]:
        raise ValueError(
            f"source_lengths has shape {tuple(source_lengths.shape)}: one length for each of the"
            f" {x.shape[0]} rows of {name} is wanted"
        )
    _check_index("source_lengths", source_lengths, name, x)


def _check_index(name: str, index: Tensor, other: str, x: Tensor) -> None:
    if index.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"{name} is {index.dtype}: int32 or int64 is wanted")
    if index.device != x.device:
        raise ValueError(f"{name} is on {index.device}, {other} on {x.device}")


def _check_attention(q: Tensor, k: Tensor, v: Tensor, stops: Tensor | None) -> None:
    batch, heads, target, size = q.shape if q.dim() == 4 else (0, 0, 0, 0)
    source = k.shape[2] if k.dim() == 4 else 0
    if not batch * heads * target * source * size or (
        not k.shape == v.shape == (batch, heads, source, size)
    ):
        raise ValueError(
            f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}: [B, H, T, D] and twice"
            " [B, H, S, D], none of them 0, wanted"
        )
    if not q.dtype == k.dtype == v.dtype or not q.dtype.is_floating_point:
        raise ValueError(f"q is {q.dtype}, k {k.dtype}, v {v.dtype}: one floating type is wanted")
    if stops is None:
        if target != source:
            raise ValueError(f"{target} queries, {source} keys: without stops, as many are wanted")
        return
    if stops.shape != (batch, target) and stops.shape != (batch, 1):
        raise ValueError(
            f"stops has shape {tuple(stops.shape)}: {(batch, target)} or {(batch, 1)} wanted"
        )
    _check_index("stops", stops, "q", q)
