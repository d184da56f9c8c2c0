"""Cross-entropy on a GPU: each row of logits is read once forward, read and written once backward.

nll = lse - x[y],   smooth = lse - (1 - eps) x[y] - eps mean(x),
dx[v] = (g0 + g1) softmax(x)[v] - [v = y] (g0 + (1 - eps) g1) - g1 eps / V
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from simultan.ops.opaque import opaque

BLOCK = 4096  # logits at once; each lane of a block has its own running maximum and sum


# counts change from batch to batch: no reason to compile again (for a stride it is one)
@triton.jit(do_not_specialize=["N"])
def entropy_forward(  # type: ignore[no-untyped-def]
    X, Y, OUT, LSE, N, V, EPS, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    high = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    plain = tl.zeros([BLOCK], tl.float32)
    for start in range(0, V, BLOCK):
        inside = start + lane < V
        x = tl.load(X + row * V + start + lane, mask=inside, other=float("-inf")).to(tl.float32)
        new = tl.maximum(high, x)
        # a lane that has seen nothing but -inf has a sum of 0, not of NaN
        old = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(high - old) + tl.exp(x - old)
        high = new
        plain += tl.where(inside, x, 0.0)
    top = tl.max(high, 0)
    lse = top + tl.log(tl.sum(total * tl.exp(high - top), 0))
    picked = tl.load(X + row * V + tl.load(Y + row)).to(tl.float32)
    tl.store(LSE + row, lse)
    tl.store(OUT + row, lse - picked)
    tl.store(OUT + N + row, lse - (1 - EPS) * picked - EPS * tl.sum(plain, 0) / V)


@triton.jit(do_not_specialize=["N"])
def entropy_backward(  # type: ignore[no-untyped-def]
    X, Y, LSE, G, DX, N, V, EPS, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < V
    at = row * V + column
    plain = tl.load(G + row)
    smooth = tl.load(G + N + row)
    both = plain + smooth
    if (plain == 0.0) & (smooth == 0.0):  # padding: whatever stands there, nothing comes of it
        tl.store(DX + at, tl.zeros([BLOCK], DX.dtype.element_ty), mask=inside)
    else:
        x = tl.load(X + at, mask=inside, other=float("-inf")).to(tl.float32)
        dx = both * tl.exp(x - tl.load(LSE + row)) - smooth * EPS / V
        dx -= tl.where(column == tl.load(Y + row), plain + (1 - EPS) * smooth, 0.0)
        tl.store(DX + at, dx.to(DX.dtype.element_ty), mask=inside)


def _block(size: int) -> int:
    return min(BLOCK, int(triton.next_power_of_2(size)))


def _results(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Memory for both losses and the log-sum-exp of each row."""
    n = logits.shape[0]
    return logits.new_empty(2, n, dtype=torch.float32), logits.new_empty(n, dtype=torch.float32)


@opaque("entropy", lambda logits, target, smoothing: _results(logits))
def _forward(logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    n, v = logits.shape
    out, lse = _results(logits)
    if n:
        entropy_forward[(n,)](
            logits, target, out, lse, n, v, smoothing, BLOCK=_block(v), num_warps=8
        )
    return out, lse


@opaque("entropy_backward", lambda logits, *_: torch.empty_like(logits))
def _backward(logits: Tensor, target: Tensor, lse: Tensor, g: Tensor, smoothing: float) -> Tensor:
    n, v = logits.shape
    block = _block(v)
    dx = torch.empty_like(logits)
    if n:
        entropy_backward[(n, triton.cdiv(v, block))](
            logits, target, lse, g, dx, n, v, smoothing, BLOCK=block, num_warps=8
        )
    return dx


class _Entropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
        out, lse = _forward(logits, target, smoothing)
        ctx.save_for_backward(logits, target, lse)
        ctx.smoothing = smoothing
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        logits, target, lse = ctx.saved_tensors
        return _backward(logits, target, lse, grads[0].contiguous(), ctx.smoothing), None, None


def cross_entropy(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """NLL and smoothed NLL of each row [2, N] in float32; logits [N, V], target [N]."""
    out: Tensor = _Entropy.apply(logits.contiguous(), target.contiguous(), smoothing)
    return out
