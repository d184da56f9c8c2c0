"""Expected alignment on a GPU: one program a head, an exact scan over the source for each row.

    forward   q[j] = (1 - p[j-1]) q[j-1] + alpha_prev[j],   alpha[j] = p[j] q[j]
    backward  A = G + Q_next,   R[j] = p[j+1] A[j+1] + (1 - p[j+1]) R[j+1],
              dp[j] = q[j] (A[j] - R[j]),   Q[j] = p[j] A[j] + (1 - p[j]) R[j]
R is Q shifted by one: carrying both keeps everything in registers.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from simultan.ops.opaque import opaque

MAX_SOURCE = 16_384


@triton.jit
def compose(a1, b1, a2, b2):  # type: ignore[no-untyped-def]
    """x -> a1 x + b1, then x -> a2 x + b2."""
    return a1 * a2, a2 * b1 + b2


# counts change from batch to batch: no reason to compile again (for a stride it is one)
@triton.jit(do_not_specialize=["H", "T"])
def alignment_forward(  # type: ignore[no-untyped-def]
    P, ALPHA, Q, LENGTHS, H, T, S, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    length = tl.load(LENGTHS + row // H).to(tl.int32)
    j = tl.arange(0, BLOCK)
    stored = j < S
    inside = j < length
    inner = (j >= 1) & inside
    base = row * T * S
    alpha = tl.where(j == 0, 1.0, 0.0).to(P.dtype.element_ty)
    # rows depend on one another, so their loads must be under way long before they are due
    for i in tl.range(0, T, num_stages=6):
        at = base + i * S + j
        p = tl.load(P + at, mask=inside, other=0.0)
        p_before = tl.load(P + at - 1, mask=inner, other=1.0)
        _, q = tl.associative_scan((1.0 - p_before, alpha), 0, compose)
        alpha = p * q
        tl.store(Q + at, q, mask=stored)
        tl.store(ALPHA + at, alpha, mask=stored)


@triton.jit
def load_row(P, Q, G, at, inside, inner):  # type: ignore[no-untyped-def]
    return (
        tl.load(P + at, mask=inside, other=0.0),
        tl.load(P + at + 1, mask=inner, other=1.0),
        tl.load(Q + at, mask=inside, other=0.0),
        tl.load(G + at, mask=inside, other=0.0),
        tl.load(G + at + 1, mask=inner, other=0.0),
    )


@triton.jit(do_not_specialize=["H", "T"])
def alignment_backward(  # type: ignore[no-untyped-def]
    P, Q, G, DP, LENGTHS, H, T, S, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    length = tl.load(LENGTHS + row // H).to(tl.int32)
    j = tl.arange(0, BLOCK)
    stored = j < S
    inside = j < length
    inner = j < length - 1
    at = (row * T + T - 1) * S + j
    ahead = tl.zeros([BLOCK], P.dtype.element_ty)  # Q of the row below
    ahead_next = tl.zeros([BLOCK], P.dtype.element_ty)  # the same, one token on
    # two rows are loaded ahead by hand: measured faster here than tl.range's own stages
    p, p_next, q, g, g_next = load_row(P, Q, G, at, inside, inner)
    p1, p_next1, q1, g1, g_next1 = load_row(P, Q, G, at - S, inside & (T > 1), inner & (T > 1))
    for i in range(0, T):
        more = i + 2 < T
        p2, p_next2, q2, g2, g_next2 = load_row(P, Q, G, at - 2 * S, inside & more, inner & more)
        a = g + ahead
        a_next = tl.where(inner, g_next + ahead_next, 0.0)
        _, ahead_next = tl.associative_scan(
            (1.0 - p_next, a_next * p_next), 0, compose, reverse=True
        )
        tl.store(DP + at, q * (a - ahead_next), mask=stored)
        ahead = tl.where(inside, p * a + (1.0 - p) * ahead_next, 0.0)
        p, p_next, q, g, g_next = p1, p_next1, q1, g1, g_next1
        p1, p_next1, q1, g1, g_next1 = p2, p_next2, q2, g2, g_next2
        at -= S


def check_source(source: int) -> int:
    """The block that holds a source row, a power of two."""
    if source > MAX_SOURCE:
        raise ValueError(f"a source of {source} tokens: the kernel takes at most {MAX_SOURCE}")
    return int(triton.next_power_of_2(source))


@opaque("alignment", lambda p, lengths: (torch.empty_like(p), torch.empty_like(p)))
def _forward(p: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    batch, heads, target, source = p.shape
    block = check_source(source)
    alpha, q = torch.empty_like(p), torch.empty_like(p)
    alignment_forward[(batch * heads,)](
        p, alpha, q, lengths, heads, target, source,
        BLOCK=block, num_warps=max(1, min(8, block // 128)),
    )  # fmt: skip
    return alpha, q


@opaque("alignment_backward", lambda p, q, g, lengths: torch.empty_like(p))
def _backward(p: Tensor, q: Tensor, g: Tensor, lengths: Tensor) -> Tensor:
    batch, heads, target, source = p.shape
    block = check_source(source)
    dp = torch.empty_like(p)
    alignment_backward[(batch * heads,)](
        p, q, g, dp, lengths, heads, target, source,
        BLOCK=block, num_warps=max(1, min(8, block // 64)),
    )  # fmt: skip
    return dp


class _Alignment(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, lengths: Tensor) -> Tensor:
        alpha, q = _forward(p, lengths)
        ctx.save_for_backward(p, q, lengths)
        return alpha

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        p, q, lengths = ctx.saved_tensors
        return _backward(p, q, grads[0].contiguous(), lengths), None


def expected_alignment(p_choose: Tensor, source_lengths: Tensor) -> Tensor:
    """alpha [B, H, T, S]; see simultan.ops."""
    alpha: Tensor = _Alignment.apply(p_choose.contiguous(), source_lengths)
    return alpha
