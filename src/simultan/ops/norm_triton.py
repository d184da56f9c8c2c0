"""Layer normalisation on a GPU: y = (x - mean) / sqrt(variance + eps) * weight + bias.

    dx = (w g - c1 - xhat c2) rstd,  c1 = mean(w g),  c2 = mean(w g xhat),
    dweight = sum over rows of g xhat,  dbias = sum over rows of g
Each program keeps its share of the last two in registers, where a compiler that sees a row sum
and a column sum of one tensor writes the tensor out between them.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from simultan.ops.opaque import opaque

PROGRAMS = 264  # two for each multiprocessor of an H200; any number is right
MAX_WIDTH = 4096


# counts change from batch to batch: no reason to compile again (for a stride it is one)
@triton.jit(do_not_specialize=["N"])
def norm_forward(  # type: ignore[no-untyped-def]
    X, W, B, Y, MEAN, RSTD, N, D, EPS, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < N) & (column < D)
    at = row.to(tl.int64) * D + column
    x = tl.load(X + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, 1)[:, None] / D
    centred = tl.where(inside, x - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, 1)[:, None] / D + EPS)
    w = tl.load(W + column, mask=column < D, other=0.0).to(tl.float32)
    b = tl.load(B + column, mask=column < D, other=0.0).to(tl.float32)
    y = centred * rstd * w + b
    tl.store(Y + at, y.to(Y.dtype.element_ty), mask=inside)
    tl.store(MEAN + row, mean, mask=row < N)
    tl.store(RSTD + row, rstd, mask=row < N)


@triton.jit(do_not_specialize=["N"])
def norm_backward(  # type: ignore[no-untyped-def]
    X, W, G, MEAN, RSTD, DX, PARTS, N, D, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)[None, :]
    w = tl.load(W + column, mask=column < D, other=0.0).to(tl.float32)
    dw = tl.zeros([ROWS, BLOCK], tl.float32)
    db = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(program * ROWS, N, tl.num_programs(0) * ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        inside = (row < N) & (column < D)
        at = row.to(tl.int64) * D + column
        x = tl.load(X + at, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(G + at, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(MEAN + row, mask=row < N, other=0.0)
        rstd = tl.load(RSTD + row, mask=row < N, other=0.0)
        xhat = tl.where(inside, (x - mean) * rstd, 0.0)
        wg = w * g
        c1 = tl.sum(wg, 1)[:, None] / D
        c2 = tl.sum(wg * xhat, 1)[:, None] / D
        dx = (wg - c1 - xhat * c2) * rstd
        tl.store(DX + at, dx.to(DX.dtype.element_ty), mask=inside)
        dw += g * xhat
        db += g
    out = program * 2 * D + tl.arange(0, BLOCK)
    tl.store(PARTS + out, tl.sum(dw, 0), mask=tl.arange(0, BLOCK) < D)
    tl.store(PARTS + out + D, tl.sum(db, 0), mask=tl.arange(0, BLOCK) < D)


def _sizes(x: Tensor) -> tuple[int, int, int, int, int]:
    """Rows, width; block, rows a tile and warps: sixteen elements a thread."""
    width = x.shape[-1]
    if width > MAX_WIDTH:
        raise ValueError(f"a width of {width}: the kernel takes at most {MAX_WIDTH}")
    block = int(triton.next_power_of_2(width))
    rows = max(1, 2048 // block)
    return x.numel() // width, width, block, rows, max(1, min(8, rows * block // 512))


def _results(x: Tensor, half: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Memory for y, and for mean and 1 / deviation of each row."""
    n = x.numel() // x.shape[-1]
    y = torch.empty_like(x, dtype=torch.bfloat16 if half else x.dtype)
    return y, x.new_empty(n, dtype=torch.float32), x.new_empty(n, dtype=torch.float32)


@opaque("norm", lambda x, weight, bias, eps, half: _results(x, half))
def _forward(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, half: bool
) -> tuple[Tensor, Tensor, Tensor]:
    n, d, block, rows, warps = _sizes(x)
    y, mean, rstd = _results(x, half)
    norm_forward[(triton.cdiv(n, rows),)](
        x, weight, bias, y, mean, rstd, n, d, eps, ROWS=rows, BLOCK=block, num_warps=warps
    )
    return y, mean, rstd


@opaque(
    "norm_backward",
    lambda x, weight, g, mean, rstd: (torch.empty_like(x), mean.new_empty(2 * x.shape[-1])),
)
def _backward(
    x: Tensor, weight: Tensor, g: Tensor, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor]:
    n, d, block, rows, warps = _sizes(x)
    programs = min(PROGRAMS, triton.cdiv(n, rows))
    dx = torch.empty_like(x)
    parts = torch.empty(programs, 2 * d, dtype=torch.float32, device=x.device)
    norm_backward[(programs,)](
        x, weight, g, mean, rstd, dx, parts, n, d, ROWS=rows, BLOCK=block, num_warps=warps
    )
    return dx, parts.sum(0)  # both sums in one: it is the launch that costs


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, half: bool
    ) -> Tensor:
        y, mean, rstd = _forward(x, weight, bias, eps, half)
        ctx.save_for_backward(x, weight, mean, rstd)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        x, weight, mean, rstd = ctx.saved_tensors
        dx, sums = _backward(x, weight, grads[0].contiguous(), mean, rstd)
        dw, db = sums.chunk(2)
        return dx, dw, db, None, None


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float, half: bool = False) -> Tensor:
    """y like x, or in bfloat16 if `half`; weight and bias are float32."""
    y: Tensor = _Norm.apply(x.contiguous(), weight, bias, eps, half)
    return y
