"""Attention over short sequences on a GPU: one program a head, the whole sequence in one block.

    forward   P = softmax(scale Q K^T),  O = P V
    backward  dV = P^T dO,  dP = dO V^T,  dS = scale P (dP - rowsum(P dP)),  dQ = dS K,  dK = dS^T Q
Everything fits a program, so backward computes P again and needs nothing but the inputs. Tiles of
a long sequence's kernel would stay mostly empty here.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from simultan.ops import cpu
from simultan.ops.opaque import opaque

MAX_BLOCK = 64
HEAD_SIZES = (16, 32, 64, 128)
# lengths change from batch to batch: one that happens to divide by 16 is no reason to recompile
LENGTHS = ["STOP_B", "STOP_T", "T", "S"]


@triton.jit
def load_tile(X, X_B, X_H, X_N, b, h, n, d, N):  # type: ignore[no-untyped-def]
    """Rows n of one head of x [B, H, N, D], 0 from N on."""
    at = b * X_B + h * X_H + n[:, None] * X_N + d[None, :]
    return tl.load(X + at, mask=n[:, None] < N, other=0.0)


@triton.jit
def store_tile(X, x, b, h, n, d, N, H, D: tl.constexpr):  # type: ignore[no-untyped-def]
    """The same rows of a contiguous [B, N, H, D]."""
    at = ((b * N + n[:, None]) * H + h) * D + d[None, :]
    tl.store(X + at, x.to(X.dtype.element_ty), mask=n[:, None] < N)


@triton.jit
def probabilities(  # type: ignore[no-untyped-def]
    q, k, STOPS, STOP_B, STOP_T, b, i, j, T, S, SCALE: tl.constexpr
):
    """P [BLOCK_T, BLOCK_S] in float32; a row that sees nothing is 0, not NaN."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * SCALE
    row = b * STOP_B + i * STOP_T
    stop = i if STOPS is None else tl.load(STOPS + row, mask=i < T, other=-1)
    visible = (j[None, :] <= stop[:, None]) & (j[None, :] < S) & (i[:, None] < T)
    scores = tl.where(visible, scores, float("-inf"))
    top = tl.max(scores, 1)
    top = tl.where(top == float("-inf"), 0.0, top)
    p = tl.exp(scores - top[:, None])
    total = tl.sum(p, 1)
    return p / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit(do_not_specialize=LENGTHS)
def attention_forward(  # type: ignore[no-untyped-def]
    Q, K, V, STOPS, OUT,
    Q_B, Q_H, Q_T, K_B, K_H, K_S, V_B, V_H, V_S, STOP_B, STOP_T, H, T, S,
    SCALE: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    b = (tl.program_id(0) // H).to(tl.int64)
    h = tl.program_id(0) % H
    i, j, d = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_S), tl.arange(0, D)
    q = load_tile(Q, Q_B, Q_H, Q_T, b, h, i, d, T)
    k = load_tile(K, K_B, K_H, K_S, b, h, j, d, S)
    v = load_tile(V, V_B, V_H, V_S, b, h, j, d, S)
    p = probabilities(q, k, STOPS, STOP_B, STOP_T, b, i, j, T, S, SCALE)
    out = tl.dot(p.to(v.dtype), v, input_precision="ieee")
    store_tile(OUT, out, b, h, i, d, T, H, D)


@triton.jit(do_not_specialize=LENGTHS)
def attention_backward(  # type: ignore[no-untyped-def]
    Q, K, V, STOPS, G, DQ, DK, DV,
    Q_B, Q_H, Q_T, K_B, K_H, K_S, V_B, V_H, V_S, G_B, G_H, G_T, STOP_B, STOP_T, H, T, S,
    SCALE: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    b = (tl.program_id(0) // H).to(tl.int64)
    h = tl.program_id(0) % H
    i, j, d = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_S), tl.arange(0, D)
    q = load_tile(Q, Q_B, Q_H, Q_T, b, h, i, d, T)
    k = load_tile(K, K_B, K_H, K_S, b, h, j, d, S)
    v = load_tile(V, V_B, V_H, V_S, b, h, j, d, S)
    g = load_tile(G, G_B, G_H, G_T, b, h, i, d, T)
    p = probabilities(q, k, STOPS, STOP_B, STOP_T, b, i, j, T, S, SCALE)
    # each gradient is stored before the next: three accumulators at once would not fit
    dv = tl.dot(tl.trans(p.to(g.dtype)), g, input_precision="ieee")
    store_tile(DV, dv, b, h, j, d, S, H, D)
    dp = tl.dot(g, tl.trans(v), input_precision="ieee")
    ds = p * (dp - tl.sum(p * dp, 1)[:, None]) * SCALE
    ds = ds.to(q.dtype)
    dq = tl.dot(ds, k, input_precision="ieee")
    store_tile(DQ, dq, b, h, i, d, T, H, D)
    dk = tl.dot(tl.trans(ds), q, input_precision="ieee")
    store_tile(DK, dk, b, h, j, d, S, H, D)


def fits(q: Tensor, k: Tensor) -> bool:
    """Whether a program can hold the sequence; only outside of a trace are sizes numbers."""
    length = max(q.shape[2], k.shape[2])
    return length <= MAX_BLOCK and q.shape[3] in HEAD_SIZES and q.dtype != torch.float64


def _blocks(q: Tensor, k: Tensor) -> dict[str, Any]:
    size = q.shape[-1]
    target, source = (max(16, triton.next_power_of_2(x.shape[2])) for x in (q, k))
    warps = 2 if max(target, source) == 16 else 4
    if q.dtype == torch.float32:
        warps *= 4  # no tensor cores: a thread's share of the operands must fit its registers
    return {
        "SCALE": size**-0.5, "D": size, "BLOCK_T": target, "BLOCK_S": source, "num_warps": warps
    }  # fmt: skip


def _empty(x: Tensor) -> Tensor:
    """Memory for something like x [B, H, N, D], as [B, N, H, D]: joining the heads is a view."""
    batch, heads, length, size = x.shape
    memory = torch.empty(batch, length, heads, size, dtype=x.dtype, device=x.device)
    return memory.transpose(1, 2)


def _rows(x: Tensor) -> Tensor:
    """Any strides do, as long as the elements of a row lie side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _stop_strides(stops: Tensor | None, q: Tensor) -> tuple[int, ...]:
    return (0, 0) if stops is None else stops.expand(q.shape[0], q.shape[2]).stride()


@opaque("attention", lambda q, k, v, stops: _empty(q))
def _forward(q: Tensor, k: Tensor, v: Tensor, stops: Tensor | None) -> Tensor:
    out = _empty(q)
    if not fits(q, k):
        return out.copy_(cpu.masked_attention(q, k, v, stops))
    q, k, v = _rows(q), _rows(k), _rows(v)
    attention_forward[(q.shape[0] * q.shape[1],)](
        q, k, v, stops, out,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *_stop_strides(stops, q),
        q.shape[1], q.shape[2], k.shape[2], **_blocks(q, k),
    )  # fmt: skip
    return out


@opaque("attention_backward", lambda q, k, v, *_: (_empty(q), _empty(k), _empty(v)))
def _backward(
    q: Tensor, k: Tensor, v: Tensor, stops: Tensor | None, g: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = _empty(q), _empty(k), _empty(v)
    if not fits(q, k):
        grads = cpu.masked_attention_backward(q, k, v, stops, g)
        return dq.copy_(grads[0]), dk.copy_(grads[1]), dv.copy_(grads[2])
    q, k, v, g = _rows(q), _rows(k), _rows(v), _rows(g)
    attention_backward[(q.shape[0] * q.shape[1],)](
        q, k, v, stops, g, dq, dk, dv,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *g.stride()[:3],
        *_stop_strides(stops, q), q.shape[1], q.shape[2], k.shape[2], **_blocks(q, k),
    )  # fmt: skip
    return dq, dk, dv


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, stops: Tensor | None) -> Tensor:
        ctx.save_for_backward(q, k, v, stops)
        return _forward(q, k, v, stops)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, stops = ctx.saved_tensors
        return *_backward(q, k, v, stops, grads[0]), None


def masked_attention(q: Tensor, k: Tensor, v: Tensor, stops: Tensor | None) -> Tensor:
    """[B, H, T, D] in the memory order of [B, T, H, D]; see simultan.ops."""
    out: Tensor = _Attention.apply(q, k, v, stops)
    return out
