"""Expected soft attention on a GPU, for any lookback; every target row is independent.

Infinite lookback, with m and s the running maximum and sum of exp(u - m):
    forward   B[j] = alpha[j] + keep[j] B[j+1],   beta[j] = weight[j] B[j],
              weight[j] = exp(u[j] - m[j]) / s[j],   keep[j] = s[j] / (s[j] + exp(u[j+1] - m[j]))
    backward  F[k] = sum_{l<=k} softmax_k(u)[l] G[l],   dalpha = F,
              du[j] = weight[j] (G[j] B[j] - C[j]),   C[j] = alpha[j] F[j] + keep[j] C[j+1]
A window of w tokens takes w shifted loads instead of the scans.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from simultan.ops.alignment_triton import check_source, compose
from simultan.ops.opaque import opaque

# An energy past the source's end (its negative: a maximum there); inf would make inf - inf.
LOWEST = tl.constexpr(-1e30)
# Energies of a row that lie closer together than this need no running maximum: exp(-50) is far
# from underflow, and plain sums scan twice as fast.
SPAN = tl.constexpr(50.0)


@triton.jit
def add_exponentials(m1, s1, m2, s2):  # type: ignore[no-untyped-def]
    """Sums of exponentials over maxima m1 and m2, over the larger: one exponential, not two."""
    first = m1 > m2
    shrink = tl.exp(-tl.abs(m1 - m2))
    return tl.maximum(m1, m2), tl.where(first, s1 + s2 * shrink, s1 * shrink + s2)


@triton.jit
def add_weighted(m1, s1, t1, m2, s2, t2):  # type: ignore[no-untyped-def]
    first = m1 > m2
    shrink = tl.exp(-tl.abs(m1 - m2))
    e1 = tl.where(first, 1.0, shrink)
    e2 = tl.where(first, shrink, 1.0)
    return tl.maximum(m1, m2), s1 * e1 + s2 * e2, t1 * e1 + t2 * e2


@triton.jit
def compose_two(a1, b1, c1, a2, b2, c2):  # type: ignore[no-untyped-def]
    return a1 * a2, a2 * b1 + b2, a2 * c1 + c2


# counts change from batch to batch: no reason to compile again (for a stride it is one)
@triton.jit(do_not_specialize=["HT", "N"])
def infinite_forward(  # type: ignore[no-untyped-def]
    ALPHA, U, BETA, LENGTHS, HT, N, S, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    length = tl.load(LENGTHS + row // HT, mask=row < N, other=0).to(tl.int32)
    j = tl.arange(0, BLOCK)[None, :]
    at = row * S + j
    inside = j < length
    alpha = tl.load(ALPHA + at, mask=inside, other=0.0)
    u = tl.load(U + at, mask=inside, other=LOWEST)
    top = tl.max(u, 1)[:, None]
    if tl.max(top - tl.min(tl.where(inside, u, top), 1)[:, None]) < SPAN:
        e = tl.exp(u - top)
        mass = tl.cumsum(alpha / tl.cumsum(e, 1), 1, reverse=True)
        beta = e * mass
    else:
        u_next = tl.load(U + at + 1, mask=j < length - 1, other=LOWEST)
        m, s = tl.associative_scan((u, tl.full(u.shape, 1.0, u.dtype)), 1, add_exponentials)
        keep = s / (s + tl.exp(u_next - m))
        _, mass = tl.associative_scan((keep, alpha), 1, compose, reverse=True)
        beta = tl.exp(u - m) / s * mass
    tl.store(BETA + at, tl.where(inside, beta, 0.0), mask=(row < N) & (j < S))


@triton.jit(do_not_specialize=["HT", "N"])
def infinite_backward(  # type: ignore[no-untyped-def]
    ALPHA, U, G, DALPHA, DU, LENGTHS, HT, N, S, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    length = tl.load(LENGTHS + row // HT, mask=row < N, other=0).to(tl.int32)
    j = tl.arange(0, BLOCK)[None, :]
    at = row * S + j
    inside = j < length
    alpha = tl.load(ALPHA + at, mask=inside, other=0.0)
    g = tl.load(G + at, mask=inside, other=0.0)
    u = tl.load(U + at, mask=inside, other=LOWEST)
    top = tl.max(u, 1)[:, None]
    if tl.max(top - tl.min(tl.where(inside, u, top), 1)[:, None]) < SPAN:
        e = tl.exp(u - top)
        s = tl.cumsum(e, 1)
        mean = tl.cumsum(e * g, 1) / s
        share = alpha / s
        mass = tl.cumsum(share, 1, reverse=True)
        mass_mean = tl.cumsum(share * mean, 1, reverse=True)
        du = e * (g * mass - mass_mean)
    else:
        u_next = tl.load(U + at + 1, mask=j < length - 1, other=LOWEST)
        m, s, t = tl.associative_scan((u, tl.full(u.shape, 1.0, u.dtype), g), 1, add_weighted)
        mean = t / s
        keep = s / (s + tl.exp(u_next - m))
        _, mass, mass_mean = tl.associative_scan(
            (keep, alpha, alpha * mean), 1, compose_two, reverse=True
        )
        du = tl.exp(u - m) / s * (g * mass - mass_mean)
    stored = (row < N) & (j < S)
    tl.store(DALPHA + at, tl.where(inside, mean, 0.0), mask=stored)
    tl.store(DU + at, tl.where(inside, du, 0.0), mask=stored)


@triton.jit(do_not_specialize=["HT"])
def window_softmax(  # type: ignore[no-untyped-def]
    U, M, INV, LENGTHS, HT, S, W, BLOCK: tl.constexpr
):
    """The maximum of each window, and one over its sum of exponentials."""
    row = tl.program_id(0).to(tl.int64)
    length = tl.load(LENGTHS + row // HT).to(tl.int32)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = row * S + k
    m = tl.load(U + at, mask=k < length, other=LOWEST)
    s = tl.full([BLOCK], 1.0, m.dtype)
    for d in range(1, W):
        u = tl.load(U + at - d, mask=(k < length) & (k >= d), other=LOWEST)
        higher = tl.maximum(m, u)
        s = s * tl.exp(m - higher) + tl.where(k >= d, tl.exp(u - higher), 0.0)
        m = higher
    tl.store(M + at, m, mask=k < S)
    tl.store(INV + at, 1.0 / s, mask=k < S)


@triton.jit(do_not_specialize=["HT"])
def window_forward(  # type: ignore[no-untyped-def]
    ALPHA, U, M, INV, BETA, LENGTHS, HT, S, W, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    length = tl.load(LENGTHS + row // HT).to(tl.int32)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = row * S + j
    u = tl.load(U + at, mask=j < length, other=LOWEST)
    beta = tl.zeros([BLOCK], u.dtype)
    for d in range(0, W):
        inside = j + d < length
        alpha = tl.load(ALPHA + at + d, mask=inside, other=0.0)
        m = tl.load(M + at + d, mask=inside, other=-LOWEST)
        inv = tl.load(INV + at + d, mask=inside, other=0.0)
        beta += alpha * inv * tl.exp(u - m)
    tl.store(BETA + at, beta, mask=j < S)


@triton.jit(do_not_specialize=["HT"])
def window_mean(  # type: ignore[no-untyped-def]
    U, M, INV, G, MEAN, LENGTHS, HT, S, W, BLOCK: tl.constexpr
):
    """F[k], the mean of G in the window that ends at k: the gradient of alpha."""
    row = tl.program_id(0).to(tl.int64)
    length = tl.load(LENGTHS + row // HT).to(tl.int32)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = row * S + k
    m = tl.load(M + at, mask=k < length, other=0.0)
    inv = tl.load(INV + at, mask=k < length, other=0.0)
    mean = tl.zeros([BLOCK], m.dtype)
    for d in range(0, W):
        inside = (k < length) & (k >= d)
        u = tl.load(U + at - d, mask=inside, other=LOWEST)
        g = tl.load(G + at - d, mask=inside, other=0.0)
        mean += tl.exp(u - m) * g
    tl.store(MEAN + at, mean * inv, mask=k < S)


@triton.jit(do_not_specialize=["HT"])
def window_backward(  # type: ignore[no-untyped-def]
    ALPHA, U, M, INV, G, MEAN, DU, LENGTHS, HT, S, W, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    length = tl.load(LENGTHS + row // HT).to(tl.int32)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = row * S + j
    u = tl.load(U + at, mask=j < length, other=LOWEST)
    g = tl.load(G + at, mask=j < length, other=0.0)
    du = tl.zeros([BLOCK], u.dtype)
    for d in range(0, W):
        inside = j + d < length
        alpha = tl.load(ALPHA + at + d, mask=inside, other=0.0)
        m = tl.load(M + at + d, mask=inside, other=-LOWEST)
        inv = tl.load(INV + at + d, mask=inside, other=0.0)
        mean = tl.load(MEAN + at + d, mask=inside, other=0.0)
        du += alpha * inv * tl.exp(u - m) * (g - mean)
    tl.store(DU + at, du, mask=j < S)


def _grid(x: Tensor) -> tuple[int, int, int, int, int, int]:
    """H T, all rows, S; and for the scans: the block, rows a program, warps."""
    batch, heads, target, source = x.shape
    block = check_source(source)
    rows = max(1, 256 // block)
    warps = max(1, min(16, rows * block // 128))  # four elements a thread
    return heads * target, batch * heads * target, source, block, rows, warps


def _empty(x: Tensor, count: int) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(x) for _ in range(count))


@opaque("infinite_lookback", lambda alpha, u, lengths: torch.empty_like(u))
def _infinite(alpha: Tensor, u: Tensor, lengths: Tensor) -> Tensor:
    ht, n, s, block, rows, warps = _grid(u)
    beta = torch.empty_like(u)
    infinite_forward[(triton.cdiv(n, rows),)](
        alpha, u, beta, lengths, ht, n, s, ROWS=rows, BLOCK=block, num_warps=warps
    )
    return beta


@opaque("infinite_lookback_backward", lambda alpha, u, *_: _empty(u, 2))
def _infinite_backward(
    alpha: Tensor, u: Tensor, g: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    ht, n, s, block, rows, warps = _grid(u)
    dalpha, du = _empty(u, 2)
    infinite_backward[(triton.cdiv(n, rows),)](
        alpha, u, g, dalpha, du, lengths, ht, n, s, ROWS=rows, BLOCK=block, num_warps=warps
    )
    return dalpha, du


def _window_grid(u: Tensor) -> tuple[int, int, int, tuple[int, int]]:
    ht, n, s, block, _, _ = _grid(u)
    block = min(block, 256)
    return ht, s, block, (n, triton.cdiv(s, block))


@opaque("window_lookback", lambda alpha, u, *_: _empty(u, 3))
def _window(alpha: Tensor, u: Tensor, lengths: Tensor, w: int) -> tuple[Tensor, Tensor, Tensor]:
    ht, s, block, grid = _window_grid(u)
    m, inv, beta = _empty(u, 3)
    window_softmax[grid](u, m, inv, lengths, ht, s, w, BLOCK=block)
    window_forward[grid](alpha, u, m, inv, beta, lengths, ht, s, w, BLOCK=block)
    return beta, m, inv


@opaque("window_lookback_backward", lambda alpha, u, *_: _empty(u, 2))
def _window_backward(
    alpha: Tensor, u: Tensor, m: Tensor, inv: Tensor, g: Tensor, lengths: Tensor, w: int
) -> tuple[Tensor, Tensor]:
    ht, s, block, grid = _window_grid(u)
    mean, du = _empty(u, 2)
    window_mean[grid](u, m, inv, g, mean, lengths, ht, s, w, BLOCK=block)
    window_backward[grid](alpha, u, m, inv, g, mean, du, lengths, ht, s, w, BLOCK=block)
    return mean, du


class _InfiniteLookback(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, alpha: Tensor, u: Tensor, lengths: Tensor) -> Tensor:
        ctx.save_for_backward(alpha, u, lengths)
        return _infinite(alpha, u, lengths)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        alpha, u, lengths = ctx.saved_tensors
        return *_infinite_backward(alpha, u, grads[0].contiguous(), lengths), None


class _WindowLookback(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, alpha: Tensor, u: Tensor, lengths: Tensor, w: int) -> Tensor:
        beta, m, inv = _window(alpha, u, lengths, w)
        ctx.save_for_backward(alpha, u, m, inv, lengths)
        ctx.w = w
        return beta

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        alpha, u, m, inv, lengths = ctx.saved_tensors
        return (
            *_window_backward(alpha, u, m, inv, grads[0].contiguous(), lengths, ctx.w),
            None,
            None,
        )


def expected_attention(
    alpha: Tensor, energy: Tensor, source_lengths: Tensor, lookback: int | None
) -> Tensor:
    """beta [B, H, T, S]; see simultan.ops."""
    if lookback == 1:
        inside = torch.arange(alpha.shape[-1], device=alpha.device) < source_lengths[:, None]
        return torch.where(inside[:, None, None, :], alpha, 0.0)
    alpha, energy = alpha.contiguous(), energy.contiguous()
    beta: Tensor
    if lookback is None:
        beta = _InfiniteLookback.apply(alpha, energy, source_lengths)
    else:
        beta = _WindowLookback.apply(alpha, energy, source_lengths, lookback)
    return beta
