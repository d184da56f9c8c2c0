"""The two operations monotonic attention stands on, each exact and differentiable.

expected_alignment: where a head is expected to stop,
    q[i,j] = (1 - p[i,j-1]) q[i,j-1] + alpha[i-1,j],   alpha[i,j] = p[i,j] q[i,j];
expected_attention: the soft attention behind that stop,
    beta[i,j] = sum_{k=j}^{j+w-1} alpha[i,k] exp(u[i,j]) / sum_{l=k-w+1}^{k} exp(u[i,l]).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from simultan.ops import reference

__all__ = ["Backend", "expected_alignment", "expected_attention"]

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
        align = reference.expected_alignment
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
        attend = reference.expected_attention
    return attend(_single(alpha), _single(energy), source_lengths, lookback)


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
    if source_lengths.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"source_lengths is {source_lengths.dtype}: int32 or int64 is wanted")
    if source_lengths.device != x.device:
        raise ValueError(f"source_lengths is on {source_lengths.device}, {name} on {x.device}")
