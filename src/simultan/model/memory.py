"""Memory in large pieces: on Linux NumPy asks for huge pages for those, PyTorch does not.

A token reads every weight once; with small pages a tenth of its time goes into finding them, and
clearing a cache of many rows takes ten times as long.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

__all__ = ["Slabs", "zeros"]

_LINE = 64  # bytes of a cache line
_SLAB = 2**25  # bytes


def _take(size: int) -> Tensor:
    """Bytes, uninitialised, from the start of a cache line on."""
    memory = torch.from_numpy(np.empty(size + _LINE, np.uint8))
    return memory[-memory.data_ptr() % _LINE :][:size]


def zeros(*shape: int, like: Tensor) -> Tensor:
    """A tensor of zeros of the same type and on the same device as another."""
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    size = math.prod(shape) * like.element_size()
    return _take(size).zero_().view(like.dtype).view(shape)


class Slabs:
    """Room for many matrices."""

    def __init__(self) -> None:
        self.rest = _take(0)

    def put(self, matrix: Tensor) -> Tensor:
        """A copy of a matrix."""
        size = matrix.numel() * matrix.element_size()
        if size > len(self.rest):
            self.rest = _take(max(_SLAB, size))
        copy = self.rest[:size].view(matrix.dtype).view(matrix.shape).copy_(matrix)
        self.rest = self.rest[-(-size // _LINE) * _LINE :]
        return copy
