"""Both operations as recurrences in plain PyTorch, fast on a CPU, with hand-written gradients.

The alignment runs over anti-diagonals d = i + j, on which all cells are independent:
    q_d[i] = pass_{d-1}[i] + alpha_{d-1}[i-1],  alpha_d = p_d q_d,  pass_d = q_d - alpha_d.
docs/maths.md derives the gradients.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def _skew(x: Tensor) -> Tensor:
    """[N, T, S] -> [T, S + T, N]: entry (i, j, n) is x[n, i, j], and 0 from j = S on."""
    n, t, s = x.shape
    rows = x.new_zeros(t, s + t, n)
    rows[:, :s] = x.reshape(n, t * s).t().contiguous().view(t, s, n)
    return rows


def _diagonals(rows: Tensor) -> tuple[Tensor, ...]:
    """Views [T, N] of a skewed tensor, d = 0 .. T + S - 2: row i at source position d - i.

    Read with lines one shorter, every row slides right by one more; the zeros of the row above
    come in at its left.
    """
    t, width, n = rows.shape
    return rows.view(-1, n)[: t * (width - 1)].view(t, width - 1, n).unbind(1)


class _Alignment(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor) -> Tensor:  # [N, T, S], 0 past the source's end
        n, t, s = p.shape
        p_skewed = _skew(p)
        q_skewed = torch.zeros_like(p_skewed)
        q_skewed[0, 0] = 1  # row -1 stopped, for certain, at the first token
        p_d, q_d = _diagonals(p_skewed), _diagonals(q_skewed)
        edge = p.new_zeros(t + 1, n)
        stopped, above = edge[1:], edge[:-1]  # alpha on this diagonal, and of the row above
        for d in range(len(q_d) - 1):
            torch.mul(p_d[d], q_d[d], out=stopped)
            torch.sub(q_d[d], stopped, out=q_d[d + 1]).add_(above)
        ctx.save_for_backward(p_skewed, q_skewed)
        return p * q_skewed[:, :s].permute(2, 0, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        # A[i,j] = G[i,j] + Q[i+1,j];  Q[i,j] = Q[i,j+1] + p (A - Q[i,j+1]);  dp = q (A - Q[i,j+1])
        p_skewed, q_skewed = ctx.saved_tensors
        n, t, s = grads[0].shape
        a_skewed = _skew(grads[0])
        p_d, a_d = _diagonals(p_skewed), _diagonals(a_skewed)
        edge = p_skewed.new_zeros(t + 1, n)
        following, below = edge[:-1], edge[1:]  # Q on the next diagonal, and of the row below
        for d in reversed(range(len(a_d))):
            a_d[d].add_(below).sub_(following)
            following.addcmul_(p_d[d], a_d[d])
        return a_skewed[:, :s].mul_(q_skewed[:, :s]).permute(2, 0, 1)


def expected_alignment(p_choose: Tensor, source_lengths: Tensor) -> Tensor:
    """alpha [B, H, T, S]; see simultan.ops."""
    inside = _inside(p_choose, source_lengths)
    p = torch.where(inside, p_choose, 0.0).flatten(0, 1)
    # a later position never feeds an earlier one, so zeros past the end are all it takes
    alpha: Tensor = _Alignment.apply(p)
    return alpha.view(p_choose.shape)


class _InfiniteLookback(torch.autograd.Function):
    """Prefix softmaxes: s_k sums exp(u - m_k) over l <= k, m_k the running maximum."""

    @staticmethod
    def forward(ctx: Any, alpha: Tensor, u: Tensor) -> Tensor:  # [S, N]
        weight, keep = _prefix_softmax(u)
        mass = _sum_down(alpha.clone(), keep)  # B[j] = alpha[j] + keep[j+1] B[j+1]
        ctx.save_for_backward(alpha, weight, keep)
        return mass.mul_(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        alpha, weight, keep = ctx.saved_tensors
        g = grads[0]
        mean = _sum_up(weight * g, keep)  # F[k]: the mean of g under the softmax over l <= k
        mass = _sum_down(alpha.clone(), keep)
        mass_mean = _sum_down(alpha * mean, keep)
        return mean, mass.mul_(g).sub_(mass_mean).mul_(weight)


def _prefix_softmax(u: Tensor) -> tuple[Tensor, Tensor]:
    """weight[k] = exp(u_k - L_k), keep[k] = exp(L_{k-1} - L_k), L the prefix log-sum-exp."""
    m = u.clone()
    rows = m.unbind(0)
    for k in range(1, len(rows)):
        torch.maximum(rows[k - 1], rows[k], out=rows[k])
    fresh = torch.exp(u - m)
    shrink = torch.exp(m.roll(1, 0) - m)
    shrink[0] = 0  # the roll brought the last maximum here
    s = _sum_up(fresh.clone(), shrink)
    return fresh / s, shrink * s.roll(1, 0) / s


def _sum_up(x: Tensor, keep: Tensor) -> Tensor:
    """x[k] += keep[k] x[k-1], from the first position on, in place."""
    rows, keeps = x.unbind(0), keep.unbind(0)
    for k in range(1, len(rows)):
        rows[k].addcmul_(keeps[k], rows[k - 1])
    return x


def _sum_down(x: Tensor, keep: Tensor) -> Tensor:
    """x[j] += keep[j+1] x[j+1], from the last position on, in place."""
    rows, keeps = x.unbind(0), keep.unbind(0)
    for j in reversed(range(len(rows) - 1)):
        rows[j].addcmul_(keeps[j + 1], rows[j + 1])
    return x


class _Lookback(torch.autograd.Function):
    """A window of w tokens, one shift at a time: nothing of size S x S, or S x w, is kept."""

    @staticmethod
    def forward(ctx: Any, alpha: Tensor, u: Tensor, w: int) -> Tensor:  # [S, N]
        m = u.clone()
        for d in range(1, w):
            m[d:] = torch.maximum(m[d:], u[:-d])
        s = torch.exp(u - m)
        for d in range(1, w):
            s[d:] += torch.exp(u[:-d] - m[d:])
        beta = torch.exp(u - m) / s * alpha
        for d in range(1, w):
            beta[:-d] += torch.exp(u[:-d] - m[d:]) / s[d:] * alpha[d:]
        ctx.save_for_backward(alpha, u, m, s)
        ctx.w = w
        return beta

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        alpha, u, m, s = ctx.saved_tensors
        g = grads[0]
        mean = torch.exp(u - m) / s * g
        for d in range(1, ctx.w):
            mean[d:] += torch.exp(u[:-d] - m[d:]) / s[d:] * g[:-d]
        du = torch.exp(u - m) / s * alpha * (g - mean)
        for d in range(1, ctx.w):
            du[:-d] += torch.exp(u[:-d] - m[d:]) / s[d:] * alpha[d:] * (g[:-d] - mean[d:])
        return mean, du, None


def expected_attention(
    alpha: Tensor, energy: Tensor, source_lengths: Tensor, lookback: int | None
) -> Tensor:
    """beta [B, H, T, S]; see simultan.ops."""
    inside = _inside(alpha, source_lengths)
    alpha = torch.where(inside, alpha, 0.0)
    if lookback == 1:
        return alpha
    # past the end: no mass; its energies never enter a softmax that ends before it
    u = torch.where(inside, energy, 0.0).flatten(0, 2).t().contiguous()
    a = alpha.flatten(0, 2).t().contiguous()
    beta: Tensor = (
        _InfiniteLookback.apply(a, u) if lookback is None else _Lookback.apply(a, u, lookback)
    )
    return torch.where(inside, beta.t().reshape(energy.shape), 0.0)


def visible(stops: Tensor | None, q: Tensor, k: Tensor) -> Tensor:
    """Which keys each query sees, [B or 1, 1, T or 1, S]; without stops, those up to itself."""
    if stops is None:
        stops = torch.arange(q.shape[2], device=q.device)[None]
    return torch.arange(k.shape[2], device=k.device) <= stops[:, None, :, None]


def masked_attention(q: Tensor, k: Tensor, v: Tensor, stops: Tensor | None) -> Tensor:
    """PyTorch's attention; see simultan.ops."""
    if stops is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    blind = (stops < 0)[:, None, :, None]
    # a row without a key is a row of NaN in some of PyTorch's backends: all keys, then 0
    mask = visible(stops, q, k) | blind
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).masked_fill(blind, 0.0)


def masked_attention_backward(
    q: Tensor, k: Tensor, v: Tensor, stops: Tensor | None, g: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Its gradients, from the inputs alone."""
    scale = q.shape[-1] ** -0.5
    mask = visible(stops, q, k)
    scores = torch.matmul(q, k.transpose(-1, -2)).float() * scale
    p = torch.softmax(scores.masked_fill(~mask, -torch.inf), -1).nan_to_num(0.0)
    dp = torch.matmul(g, v.transpose(-1, -2)).float()
    ds = (p * (dp - (p * dp).sum(-1, keepdim=True)) * scale).to(q.dtype)
    p = p.to(g.dtype)
    return ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ g


def _inside(x: Tensor, source_lengths: Tensor) -> Tensor:
    positions = torch.arange(x.shape[-1], device=x.device)
    return (positions < source_lengths[:, None])[:, None, None, :]  # [B, 1, 1, S]


def cross_entropy(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """NLL and smoothed NLL of each row; see simultan.ops."""
    if not torch.compiler.is_compiling():
        losses: Tensor = _CrossEntropy.apply(logits, target, smoothing)
        return losses
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))  # fused when compiled
    # Not gather(): its backward is a scatter into a second [N, V] buffer that nothing fuses with.
    chosen = torch.arange(logits.shape[-1], device=logits.device) == target[:, None]
    picked = torch.where(chosen, wide, 0.0).sum(-1)
    normaliser = wide.logsumexp(-1)
    smooth = normaliser - (1 - smoothing) * picked - smoothing * wide.mean(-1)
    return torch.stack([normaliser - picked, smooth])


class _CrossEntropy(torch.autograd.Function):
    """The same in few passes over [N, V], which is most of a small model's time on a CPU.

    d/dx = (g + g') softmax(x) - eps g' / V, and at the target - g - (1 - eps) g' more.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
        kind = torch.promote_types(logits.dtype, torch.float32)
        logs = torch.log_softmax(logits, -1, dtype=kind)
        nll = -logs.gather(1, target[:, None])[:, 0]
        ctx.save_for_backward(logs, target)
        ctx.smoothing, ctx.kind = smoothing, logits.dtype
        return torch.stack([nll, (1 - smoothing) * nll - smoothing * logs.mean(-1)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        logs, target = ctx.saved_tensors
        plain, smooth = grads[0]
        slope = logs.exp().mul_((plain + smooth)[:, None])
        slope.sub_((ctx.smoothing / logs.shape[1] * smooth)[:, None])
        hit = plain + (1 - ctx.smoothing) * smooth
        slope.scatter_add_(1, target[:, None], -hit[:, None])
        return slope.to(ctx.kind), None, None
