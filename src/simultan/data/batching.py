"""Batches by token budget."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Padded pairs; both sides end in end-of-sequence, which the lengths count."""

    source: Tensor  # [B, S] int64
    source_lengths: Tensor  # [B] int64
    target: Tensor  # [B, T] int64
    target_lengths: Tensor  # [B] int64
