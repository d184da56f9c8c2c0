"""Memory in large pieces, with huge pages where the system has them (Linux).

A token reads every weight once; with small pages a tenth of its time goes into finding them, and
clearing a cache of many rows takes as long as translating with it.
"""

from __future__ import annotations

import math
import mmap

import torch
from torch import Tensor

__all__ = ["Slabs", "zeros"]

_LARGE = 2**22  # bytes
_SLAB = 2**25
_LINE = 64  # a cache line


def _bytes(size: int) -> Tensor:
    """Cleared memory, as bytes."""
    if size < _LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(size, dtype=torch.uint8)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.uint8)  # which keeps the pages


def zeros(*shape: int, like: Tensor) -> Tensor:
    """A tensor of zeros of the same type and on the same device as another."""
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    return _bytes(math.prod(shape) * like.element_size()).view(like.dtype).view(shape)


class Slabs:
    """Room for many matrices."""

    def __init__(self) -> None:
        self.rest = _bytes(0)

    def put(self, matrix: Tensor) -> Tensor:
        """A copy of a matrix."""
        size = matrix.numel() * matrix.element_size()
        if size > len(self.rest):
            self.rest = _bytes(max(_SLAB, size))
        copy = self.rest[:size].view(matrix.dtype).view(matrix.shape).copy_(matrix)
        self.rest = self.rest[-(-size // _LINE) * _LINE :]
        return copy
