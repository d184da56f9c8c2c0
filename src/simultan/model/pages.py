"""Memory for weights, in huge pages where the system has them (Linux).

A token of a single row reads every weight once, and with small pages some of its time goes into
finding them.
"""

from __future__ import annotations

import mmap
import threading

import torch
from torch import Tensor

PIECE = 2**25  # bytes
LINE = 64  # of the processor's caches


class Pages:
    """Room for many matrices, side by side: one alone would not fill a huge page."""

    def __init__(self) -> None:
        self.rest = torch.empty(0, dtype=torch.uint8)
        self.lock = threading.Lock()  # layouts are made when first needed, in any thread

    def __deepcopy__(self, memo: object) -> Pages:
        return Pages()

    def put(self, matrix: Tensor) -> Tensor:
        """A copy of a matrix."""
        size = matrix.nbytes
        with self.lock:
            if size > len(self.rest):
                self.rest = _take(max(PIECE, size))
            room, self.rest = self.rest[:size], self.rest[-(-size // LINE) * LINE :]
        return room.view(matrix.dtype).view(matrix.shape).copy_(matrix)


def _take(size: int) -> Tensor:
    """New memory, as bytes."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size, dtype=torch.uint8)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.uint8)
