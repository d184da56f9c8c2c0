"""The alignment and the attention as anyone would write them down, one number at a time: for tests.

alpha[i,j] = p[i,j] sum_{k<=j} alpha[i-1,k] prod_{l=k}^{j-1} (1 - p[i,l])
beta[i,j]  = sum_{k=j}^{j+w-1} alpha[i,k] exp(u[i,j]) / sum_{l=k-w+1}^{k} exp(u[i,l])
"""

from __future__ import annotations

import torch
from torch import Tensor


def expected_alignment(p_choose: Tensor, source_lengths: Tensor) -> Tensor:
    """alpha [B, H, T, S]; see simultan.ops."""
    alpha = torch.zeros_like(p_choose)
    batch, heads, target, source = p_choose.shape
    for b in range(batch):
        for h in range(heads):
            before = torch.zeros(source, dtype=p_choose.dtype)
            before[0] = 1  # all heads start from the first token
            for i in range(target):
                p = p_choose[b, h, i]
                for j in range(int(source_lengths[b])):
                    for k in range(j + 1):
                        alpha[b, h, i, j] += p[j] * before[k] * torch.prod(1 - p[k:j])
                before = alpha[b, h, i]
    return alpha


def expected_attention(
    alpha: Tensor, energy: Tensor, source_lengths: Tensor, lookback: int | None = None
) -> Tensor:
    """beta [B, H, T, S]; see simultan.ops."""
    beta = torch.zeros_like(alpha)
    for b in range(len(alpha)):
        for k in range(int(source_lengths[b])):
            first = 0 if lookback is None else max(0, k - lookback + 1)
            softmax = torch.softmax(energy[b, :, :, first : k + 1], -1)
            beta[b, :, :, first : k + 1] += alpha[b, :, :, k : k + 1] * softmax
    return beta
